"""Every exception of matrixdp.

They have one root, so that a caller can catch what the library raises on purpose and nothing else.
The others also inherit the builtin exception that a Python programmer would expect. Messages name
the argument, its value and what to do; they never contain data.
"""

__all__ = [
    "BudgetExceededError",
    "CalibrationError",
    "FileFormatError",
    "InvalidParameterError",
    "KeyStateError",
    "LedgerError",
    "MatrixDPError",
    "MissingExtraError",
    "NotPositiveDefiniteError",
    "RankError",
    "ShapeError",
    "StorageError",
]


class MatrixDPError(Exception):
    """The root of every error that matrixdp raises on purpose."""


# A ValueError even for a wrong type: callers should not need to catch two errors for one mistake.
class InvalidParameterError(MatrixDPError, ValueError):
    """A parameter is of the wrong kind or outside its domain."""


class ShapeError(MatrixDPError, ValueError):
    """Arrays have shapes that do not fit together."""


class NotPositiveDefiniteError(MatrixDPError, ValueError):
    """A covariance is not proven positive definite; it is refused, never repaired."""


class CalibrationError(MatrixDPError, ArithmeticError):
    """A calibration did not converge; no number is returned rather than an unproven one."""


# Not a ValueError: the argument is valid, and the same call could succeed with more budget.
class BudgetExceededError(MatrixDPError):
    """A release was refused: it would spend more than its budget holds. Nothing was spent."""


class KeyStateError(MatrixDPError, RuntimeError):
    """A release key or noise stream may not be used in this way: bound, erased, or from a fork."""


# Not an error of the caller: the ledger has to be looked at before anything else is paid from it.
class LedgerError(MatrixDPError, RuntimeError):
    """A ledger is not the one it should be: altered, an older copy, or of another version."""


# Not an error of this process: the message says which other one has to be looked at.
class RankError(MatrixDPError, RuntimeError):
    """Another rank of a training has stopped, or is at another point of it."""


class FileFormatError(MatrixDPError, ValueError):
    """A file is not what its name or its header claims."""


# An OSError, so that code which handles a full disk handles this one, too.
class StorageError(MatrixDPError, OSError):
    """A result could not be stored; the target was left untouched."""


class MissingExtraError(MatrixDPError, ImportError):
    """An optional part of the library is not installed; the message says how to install it."""
