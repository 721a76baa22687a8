"""Ball arithmetic from python-flint, which only the proofs of the noise tables need."""

from matrixdp.errors import MissingExtraError

try:
    from flint import arb, ctx, fmpq
except ImportError as error:
    raise MissingExtraError(
        "the certificates of the noise tables need python-flint; install it with "
        "pip install '.[dev]' in a clone of matrixdp"
    ) from error

__all__ = ["PRECISION", "arb", "ctx", "fmpq"]

PRECISION = 200
"""Bits of the ball arithmetic."""
