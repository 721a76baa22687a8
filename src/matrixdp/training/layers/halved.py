"""Numbers held in 16 bits where a product would drop the other bits in any case.

TF32 multiplies float32 numbers by their first 11 bits, which is what float16 has too. Its range is
narrow, so each example is scaled by a power of two that brings its largest number near the end of
that range. Numbers that are smaller by a factor of 2**28 or more lose further bits, all of them
below 2**-38 of the largest number.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Halved", "halved", "loses_nothing"]

# float32 keeps its exponent in the bits from 23 on, with 127 for 2**0.
_MANTISSA_BITS = 23
# The largest number of an example is scaled to at least 2**14 and below 2**15; float16 ends at
# 65504, just below 2**16.
_TARGET = 14
# The least exponent that is scaled fully, so that the way back is not a subnormal number.
_LEAST_EXPONENT = 15
# Rows of a Gram matrix's factor should start at multiples of 16 bytes, or products are slow.
_ALIGNED = 8


class Halved(NamedTuple):
    """Examples in 16 bits.

    Attributes
    ----------
    values : Tensor, shape (examples, ...)
        In float16.
    scale : Tensor, shape (examples,)
        A power of two for each example, by which values are to be multiplied; in float32.
    """

    values: Tensor
    scale: Tensor

    def widened(self, weights: Tensor | None = None) -> Tensor:
        """Return the numbers in float32, each example times its weight if there are any."""
        # In float64: weights may bring a part of another scale, beyond the range of float32.
        factors = self.scale if weights is None else (self.scale * weights.double()).float()
        # One pass: torch multiplies 16 by 32 bits in 32 bits.
        return self.values * factors.reshape(-1, *(1,) * (self.values.ndim - 1))


def halved(numbers: Tensor) -> Halved:
    """Return examples in 16 bits; what is not finite stays so.

    Parameters
    ----------
    numbers : Tensor, shape (examples, ...)
        In float32.
    """
    # Not flattened: with channels last that would be a copy.
    axes = tuple(range(1, numbers.ndim))
    largest = torch.linalg.vector_norm(numbers, ord=torch.inf, dim=axes)
    # By its bits, as a power of two must be exact: the norm is taken of scaled numbers and the sum
    # of numbers that are scaled back, and both must be the same.
    exponent = (largest.view(torch.int32) >> _MANTISSA_BITS).clamp(min=_LEAST_EXPONENT)
    down = ((exponent - _TARGET) << _MANTISSA_BITS).view(torch.float32)
    up = ((2 * 127 + _TARGET - exponent) << _MANTISSA_BITS).view(torch.float32)
    values = torch.empty_like(numbers, dtype=torch.float16)
    torch.mul(numbers, up.reshape(-1, *(1,) * (numbers.ndim - 1)), out=values)
    return Halved(values, down)


def loses_nothing(inputs: Tensor, outputs: Tensor) -> bool:
    """Return whether a convolution would drop the other bits of its factors in any case.

    Parameters
    ----------
    inputs, outputs : Tensor, shapes (examples, channels, height, width)
        The two factors of its weight gradient.
    """
    aligned = all(part[0, 0].numel() % _ALIGNED == 0 for part in (inputs, outputs))
    return aligned and outputs.dtype == torch.float32 and _multiplies_in_tf32(outputs)


def _multiplies_in_tf32(outputs: Tensor) -> bool:
    if not (outputs.is_cuda and torch.backends.cudnn.enabled):
        return False
    if torch.backends.cuda.matmul.allow_fp16_accumulation:
        return False  # products of 16 bits would be added up in 16 bits, and no bound would hold
    return torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
