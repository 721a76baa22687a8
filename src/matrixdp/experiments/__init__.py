"""Experiments on public data sets: their data, their models, and what runs them."""
