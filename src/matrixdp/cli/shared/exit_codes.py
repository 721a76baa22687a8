"""The exit codes of the program, and errors that have one of their own.

They have a file of their own, since starting any command needs them.
"""

from matrixdp.errors import MatrixDPError

__all__ = [
    "BAD_INPUT",
    "DEFECT",
    "FALSE_CLAIM",
    "INTERRUPTED",
    "REFUSED_BY_BUDGET",
    "RELEASED_BUT_CUT_SHORT",
    "FalseClaimError",
    "ReleasedButCutShortError",
]

DEFECT = 1
BAD_INPUT = 2
REFUSED_BY_BUDGET = 3
RELEASED_BUT_CUT_SHORT = 4
FALSE_CLAIM = 5
INTERRUPTED = 130


class FalseClaimError(MatrixDPError):
    """A file or a noise scale does not give the guarantee that is claimed of it."""


class ReleasedButCutShortError(MatrixDPError):
    """A release is out, at least in part, or paid and pending, but the command could not finish.

    Its budget is spent.
    """
