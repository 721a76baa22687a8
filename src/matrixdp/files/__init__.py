"""Matrices, releases and strategies in files: formats, statements, atomic writing, streaming."""
