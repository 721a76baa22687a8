"""Queries: from records to a value, with a known bound on what one record changes."""

from matrixdp.queries.histogram import histogram

__all__ = ["histogram"]
