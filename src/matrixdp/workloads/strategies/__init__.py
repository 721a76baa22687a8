"""What is measured with noise: the interface, products of matrices, and stacks of products."""
