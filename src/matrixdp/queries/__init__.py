"""Queries: from records to a value whose change by one record is known."""

from matrixdp.queries.histogram import histogram

__all__ = ["histogram"]
