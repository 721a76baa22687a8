"""What one record can change: sets of possible differences, and how noise measures them."""
