"""The error of a command that released something and could not finish.

It has a file of its own, since starting any command needs it and reading matrices does not.
"""

from matrixdp.errors import MatrixDPError

__all__ = ["ReleasedButCutShortError"]


class ReleasedButCutShortError(MatrixDPError):
    """A release is out, at least in part, but the command could not finish; its budget is spent."""
