"""Every exception of matrixdp.

One root, so that a caller can catch the library's refusals and nothing else; the leaves also
inherit the builtin a Python programmer would expect. Messages name the argument, its value and the
way out; they never contain data.
"""

__all__ = [
    "BudgetExceededError",
    "CalibrationError",
    "InvalidParameterError",
    "MatrixDPError",
    "NotPositiveDefiniteError",
    "ShapeError",
]


class MatrixDPError(Exception):
    """The root of every error that matrixdp raises on purpose."""


class InvalidParameterError(MatrixDPError, ValueError):
    """A parameter is of the wrong kind or outside its domain."""


class ShapeError(MatrixDPError, ValueError):
    """Arrays do not have the shapes that belong together."""


class NotPositiveDefiniteError(MatrixDPError, ValueError):
    """A covariance is not proven positive definite; it is refused, never repaired."""


class CalibrationError(MatrixDPError, ArithmeticError):
    """A calibration did not converge; no number is returned rather than an unproven one."""


class BudgetExceededError(MatrixDPError):
    """A release was refused: it would spend more than its budget holds. Nothing was spent."""
