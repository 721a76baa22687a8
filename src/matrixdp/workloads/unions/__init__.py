"""Unions of products with too many cells for their Gram matrix: candidates and a bound."""
