"""``matrixdp query``: from a file of records to a released sum, moment matrix or table."""

from matrixdp.cli.commands.query.commands import app

__all__ = ["app"]
