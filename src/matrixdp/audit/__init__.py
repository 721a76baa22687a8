"""What mechanisms cost: comparison, the truth of a claim, and tests from samples."""
