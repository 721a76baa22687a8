"""Mechanisms: from a matrix and a promise to a release."""
