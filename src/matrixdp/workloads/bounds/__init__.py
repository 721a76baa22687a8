"""Proven lower bounds of the error of every strategy."""
