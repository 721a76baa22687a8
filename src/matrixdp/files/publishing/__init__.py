"""Saved releases: files that appear complete, their statements, and what proves them."""
