"""The model as it is trained: its parameters and tensors, and what it may not contain."""
