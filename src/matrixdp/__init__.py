"""Differential privacy for matrix-valued queries."""

from importlib.metadata import version

__version__ = version("matrixdp")
