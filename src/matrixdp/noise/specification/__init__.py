"""The definition of the noise: exact rules in integers, and the proved table of the fast path."""
