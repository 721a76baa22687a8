"""An exponential with the same bits everywhere: for any position, length, thread or device.

Libraries compute it differently in vectors and in what is left over at their ends, so that taking a
record away could change the last bit of another one's. This one is made of sums, products and
roundings of float64 alone, which IEEE 754 determines.
"""

import math

import torch
from torch import Tensor

__all__ = ["exponential"]

_LEAST = -700.0  # below it, the result is as good as 0
_TERMS = 13  # the next one is below 1e-17 for |x| <= log(2) / 2
# log(2) in two parts; products of the first with an integer up to 2**11 are exact.
_HIGH = math.floor(math.log(2) * 2**32) / 2**32
_LOW = 1.9082149292705877e-10


def exponential(values: Tensor) -> Tensor:
    """Return ``exp(x)`` of float64 numbers that are at most 0, to about 1e-15.

    ``exp(x) = 2^k exp(r)`` with r = x - k log 2, and ``exp(r)`` by its Taylor polynomial. Numbers
    below -700 count as -700. NaN stays NaN.

    Examples
    --------
    >>> exponential(torch.tensor([0.0, -1.0]).double()).tolist()
    [1.0, 0.36787944117144...]
    """
    held = values.clamp(min=_LEAST)
    power = (held * (1 / math.log(2))).round()
    rest = held - power * _HIGH - power * _LOW
    total = torch.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        total = total * (rest * (1 / term)) + 1
    # A float64 with nothing but this exponent: an exact power of two.
    scale = ((power.nan_to_num().to(torch.int64) + 1023) << 52).view(torch.float64)
    return total * scale
