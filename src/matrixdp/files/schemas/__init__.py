"""Schemas of the JSON statements, and how they become the library's values."""
