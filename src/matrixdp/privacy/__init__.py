"""What a guarantee is: formulas only, no data and no randomness."""
