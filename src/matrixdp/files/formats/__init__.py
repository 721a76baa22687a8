"""Formats of matrices in files: their openers, their writers and the decimals in text."""
