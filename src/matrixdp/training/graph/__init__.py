"""Graph convolutions whose records are nodes."""
