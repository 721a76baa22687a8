"""Proofs of the noise tables, which need python-flint; nothing that draws noise imports them."""
