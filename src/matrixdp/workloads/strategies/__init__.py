"""Strategies: the interface, products of matrices, and stacks of products."""
