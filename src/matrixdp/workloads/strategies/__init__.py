"""What is measured: products and stacks of them, their sensitivity, and plain ones."""
