"""Training on several ranks: processes that share records, sums and noise, and spend once."""
