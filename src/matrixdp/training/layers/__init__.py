"""Per-example gradients, layer by layer."""
