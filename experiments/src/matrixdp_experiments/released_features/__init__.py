"""Type II of the paper: features of private records, released once and trained on by others."""
