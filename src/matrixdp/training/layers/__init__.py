"""The rules by which the gradients of single records are formed, by kind of layer."""
