"""Whitening of blocks by statistics of synthetic images."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp_experiments.record.integers import bounded_integers

__all__ = ["BLOCK_BOUND", "BlockWhitening"]

BLOCK_BOUND = 2**15 - 1
"""Norm of a block's integers, at most; so that they are of 16 bits."""

_FLOOR = 1e-3  # added to eigenvalues, over the largest


@dataclass(frozen=True, eq=False)
class BlockWhitening:
    """An affine map of one block to its principal directions, the strongest first.

    A direction with eigenvalue s, where t is the largest, is divided by ``sqrt(s / t + 1e-3)``.

    Attributes
    ----------
    centre : Tensor, shape (columns,)
        Mean of the synthetic rows.
    directions : Tensor, shape (columns, columns)
        What rows are multiplied by.
    """

    centre: Tensor
    directions: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> Self:
        """Return the map for public rows."""
        centre = rows.mean(dim=0)
        centred = (rows - centre).double()
        variances, directions = torch.linalg.eigh(centred.T @ centred / len(rows))
        shares = variances.clamp(min=0.0) / variances[-1].clamp(min=1e-30)
        scaled = directions * (shares + _FLOOR).rsqrt()
        return cls(centre, scaled.flip(1).to(rows.dtype))

    def __call__(self, rows: Tensor) -> Tensor:
        """Return rows of integers with a norm of at most `BLOCK_BOUND`, as int16."""
        unit = functional.normalize((rows - self.centre) @ self.directions, dim=1)
        return bounded_integers(unit.double(), BLOCK_BOUND).to(torch.int16)
