"""What the noise is: exact rules in integers, and the proved table of the fast path."""
