"""Checks before a step is spent: arguments, the model, and that records are kept apart."""
