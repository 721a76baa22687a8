"""Whitening of blocks by statistics of synthetic images, in integers.

What is measured on an image becomes integers first. Every sum over its columns is then exact, so
that a whitened row depends on that image alone, whatever is computed beside it.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from matrixdp_experiments.procedural.integers import bounded_integers, squared_lengths

__all__ = ["BLOCK_BOUND", "BlockWhitening", "measured_integers"]

BLOCK_BOUND = 2**15 - 1
"""Norm of a block's integers, at most; so that they are of 16 bits."""

# Steps of a unit, and the most steps, of: what is measured, directions, and whitened numbers. With
# 2**11 columns no sum is above 2**53: 2**(11 + 21 + 20), and 2**(11 + 2 * 21) of squares.
_MEASURED_STEPS, _MOST_MEASURED = 2.0**16, 2.0**20
_DIRECTION_STEPS, _MOST_DIRECTION = 2.0**14, 2.0**20
_WHITE_STEPS, _MOST_WHITE = 2.0**15, 2.0**21

_FLOOR = 1e-3  # added to eigenvalues, over the largest


def measured_integers(row: Tensor) -> Tensor:
    """Return what was measured in steps of 2^-16, as integers of at most 2^20; NaN counts as 0.

    Examples
    --------
    >>> measured_integers(torch.tensor([0.5, -1e9, torch.nan]))
    tensor([   32768., -1048576.,        0.])
    """
    steps = (row * _MEASURED_STEPS).round().clamp(-_MOST_MEASURED, _MOST_MEASURED)
    return steps.nan_to_num(nan=0.0)


@dataclass(frozen=True, eq=False)
class BlockWhitening:
    """An affine map of one block to its principal directions, the strongest first.

    A direction with eigenvalue s, where t is the largest, is divided by ``sqrt(s / t + 1e-3)``.

    Attributes
    ----------
    centre : Tensor, shape (columns,)
        Mean of the synthetic rows: integers in the steps of what is measured.
    directions : Tensor, shape (columns, columns)
        What rows are multiplied by: integers in steps of 2^-14. At most 2^11 columns.
    """

    centre: Tensor
    directions: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """Return the map for public rows of `measured_integers`."""
        real = rows.double()
        centre = real.mean(dim=0)
        centred = real - centre
        variances, directions = torch.linalg.eigh(centred.T @ centred / len(rows))
        shares = variances.clamp(min=0.0) / variances[-1].clamp(min=1.0)
        scaled = (directions * (shares + _FLOOR).rsqrt()).flip(1) * _DIRECTION_STEPS
        return cls(centre.round(), scaled.round().clamp(-_MOST_DIRECTION, _MOST_DIRECTION))

    def __call__(self, rows: Tensor) -> Tensor:
        """Return rows of integers with a norm of at most `BLOCK_BOUND`, as int16.

        Parameters
        ----------
        rows : Tensor
            Of `measured_integers`.
        """
        exact = (rows.double() - self.centre) @ self.directions
        unit = _WHITE_STEPS / (_MEASURED_STEPS * _DIRECTION_STEPS)  # a power of two
        white = (exact * unit).round().clamp(-_MOST_WHITE, _MOST_WHITE)
        length = squared_lengths(white).sqrt().clamp(min=1.0)
        return bounded_integers(white / length[:, None], BLOCK_BOUND).to(torch.int16)
