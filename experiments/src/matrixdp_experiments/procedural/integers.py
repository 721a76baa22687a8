"""Rows of integers whose norm is at most a bound, exactly, whatever goes in.

Float arithmetic proves nothing about the norm of what it computes. Here a row becomes integers, and
what is bounded is the integers. A row depends on nothing but its own numbers, because sums of
integers below 2**53 are exact in float64 in every order: no block size, no other row and no kernel
changes a bit of it.
"""

import torch
from torch import Tensor

__all__ = ["EXACT", "bounded_integers", "squared_lengths"]

EXACT = 2.0**53
"""Sums of integers are exact in float64, in any order, where their terms' sizes add up to this."""

# Keeps rows of norm 1 from failing the test by rounding; it proves nothing.
_ROOM = 1 - 2.0**-12


def squared_lengths(whole: Tensor) -> Tensor:
    """Return the sums of squares of rows of integers.

    Exact where they are below 2**53. A sum that is not has a partial sum of at least 2**53 in any
    order, and since rounding is monotone, it does not fall below that again.
    """
    return (whole * whole).sum(dim=1)


def bounded_integers(rows: Tensor, bound: int) -> Tensor:
    """Return rows times the bound, rounded towards zero to integers of norm at most the bound.

    Parameters
    ----------
    rows : Tensor of float64, shape (rows, columns)
        Of norm at most 1 up to rounding. A row that is not, or is not finite, becomes 0.
    bound : int
        From 2**10 to 2**26.

    Notes
    -----
    *Guarantee:* the integers ``q`` of a row satisfy ``sum_j q_j^2 <= bound^2`` in exact arithmetic,
    and depend on that row alone. The sum of their squares is compared with ``bound^2``, and
    `squared_lengths` makes that test exact; every other step is entry by entry.

    Examples
    --------
    >>> import torch
    >>> bounded_integers(torch.tensor([[0.6, -0.8], [3.0, 0.0]]).double(), 1024)
    tensor([[ 614., -819.],
            [   0.,    0.]], dtype=torch.float64)
    """
    whole = (rows * (bound * _ROOM)).trunc()
    within = squared_lengths(whole) <= float(bound) ** 2  # false for NaN
    return torch.where(within[:, None], whole, 0.0)
