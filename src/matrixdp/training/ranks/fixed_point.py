"""Sums of ranks in fixed point, so that their order cannot change a bit; and what that takes.

Let C be a clip norm, P the number of elements that it is for, and u the largest power of two with
``u <= 2**-30 C``. A rank rounds its sum to the grid of multiples of u, which add up exactly in any
order. A record is on one rank, so that neighbours differ in the sum of that rank
alone: S and S'. Rounding moves each element by at most u / 2, hence

    ‖round(S) - round(S')‖ <= ‖S - S'‖ + ‖round(S) - S‖ + ‖S' - round(S')‖
                           <= ‖S - S'‖ + 2 sqrt(P) u / 2 <= ‖S - S'‖ + sqrt(P) 2**-30 C.

Records are therefore clipped to ``C - sqrt(P) u``, and the noise stays that for C. Two records that
move every element from one side of a rounding boundary to the other do use up the allowance.

In the mode ``exact`` sums are multiples of u already: nothing is rounded, and nothing taken off.
"""

import math
from fractions import Fraction
from typing import Any

from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.rounding import float_down

__all__ = ["BITS", "grid_step", "on_grid", "shortened"]

BITS = 30
"""A clip norm has 2**30 to 2**31 steps."""


def grid_step(bound: float) -> float:
    """Return the largest power of two that is at most ``2**-30`` times a clip norm.

    Examples
    --------
    >>> grid_step(1.0) == grid_step(1.9) == 2.0**-30
    True
    """
    return math.ldexp(1.0, math.frexp(bound)[1] - 1 - BITS)


def shortened(bound: float, size: int) -> float:
    """Return ``bound - sqrt(size) grid_step(bound)``, rounded down.

    What records are clipped to, so that with the rounding of the sum one of them moves it by no
    more than the bound.

    Parameters
    ----------
    bound : float
        The clip norm that noise is added for.
    size : int
        How many elements the gradient has.

    Raises
    ------
    InvalidParameterError
        If nothing is left, beyond 2**60 elements.

    Examples
    --------
    >>> 1.0 - shortened(1.0, 10**6) <= 1.0001e-6
    True
    """
    root = math.isqrt(size - 1) + 1 if size else 0  # rounded up
    left = Fraction(bound) - root * Fraction(grid_step(bound))
    if left <= 0:
        raise InvalidParameterError(
            f"clip_norm={bound!r} for {size} elements leaves nothing to a record once rounding is "
            "taken off: train fewer parameters"
        )
    return float_down(left)


def on_grid(values: Tensor, step: float | Tensor, ranks: int) -> Tensor:
    """Return sums rounded to multiples of a step, in place, so that those of all ranks add up.

    Up to ``2**53`` steps float64 holds every multiple, so that no sum of ranks is rounded, in any
    order. What is beyond a rank's share of that is cut off, which moves no two sums apart.

    Parameters
    ----------
    values : Tensor
        float64, not NaN; they are overwritten.
    step : float or Tensor
        A power of two, or one for each element.
    ranks : int
        How many there are.
    """
    most: Any = min(2**51, 2**53 // ranks) * step
    # Between 2**52 and 2**53 steps the numbers of float64 are the multiples of a step, so that
    # adding 3 * 2**51 steps rounds to the nearest of them; taking these away again is exact.
    shift = 3.0 * 2.0**51 * step
    return values.clamp_(-most, most).add_(shift).sub_(shift)
