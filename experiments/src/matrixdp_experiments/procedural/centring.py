"""The private mean of the blocks' first columns, and rows of norm 1 without it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from matrixdp import Budget
from matrixdp_experiments.procedural.blocks import Block, block_weights
from matrixdp_experiments.procedural.integers import bounded_integers, squared_lengths
from matrixdp_experiments.procedural.releasing import Noise, check_exact, mechanism_for
from matrixdp_experiments.procedural.whitening import BLOCK_BOUND

__all__ = ["ROW_BOUND", "ROW_LENGTH", "Centring", "leading_columns", "released_mean"]

ROW_BOUND = 2**16
"""Norm of a row's integers, at most."""

_CONSTANT = 0.3
ROW_LENGTH = math.sqrt(1 + _CONSTANT**2)
"""Norm of a row: 1 for the blocks, and a constant column beside them."""

_LEADING = 256
_AT_ONCE = 8192  # records; it limits memory and changes nothing


def leading_columns(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """Return start and end of the columns of each block whose mean is released."""
    starts = [sum(block.columns for block in blocks[:number]) for number in range(len(blocks))]
    return [
        (start, start + min(_LEADING, block.columns))
        for start, block in zip(starts, blocks, strict=True)
    ]


def released_mean(
    rows: Tensor, blocks: Sequence[Block], records: int, budget: Budget, noise: Noise
) -> Tensor:
    """Return the mean of all records' leading columns with noise, rounded to integers.

    One record adds at most `BLOCK_BOUND` in each block, so its norm is at most that times the root
    of the number of blocks. Each block is shrunk by the share of its length that is noise.

    Parameters
    ----------
    rows : Tensor of int16, shape (records, columns)
        The private rows, of a `FeatureMap`.
    blocks : sequence of Block
        Their columns.
    records : int
        A public guess of their number.
    budget : Budget
        Of this release.
    noise : Noise
        Exact, or simulated.
    """
    columns = leading_columns(blocks)
    check_exact(BLOCK_BOUND, len(rows))
    # Exact: integers that add up to less than 2**53.
    total = torch.cat([rows[:, start:end].sum(dim=0, dtype=torch.int64) for start, end in columns])
    mechanism = mechanism_for(len(blocks) * BLOCK_BOUND**2, budget)
    noisy = noise(total.double()[None], mechanism)[0] / records
    deviation = float(mechanism.covariance.scale) / records  # type: ignore[attr-defined]
    parts = []
    for mean in noisy.split([end - start for start, end in columns]):
        share = len(mean) * deviation**2 / mean.square().sum()
        parts.append(mean * (1 - share).clamp(min=0.0))
    return torch.cat(parts).round().clamp(-BLOCK_BOUND, BLOCK_BOUND)


@dataclass(frozen=True, eq=False)
class Centring:
    """From a feature map's rows to rows of integers of norm at most `ROW_BOUND`.

    Attributes
    ----------
    blocks : sequence of Block
        The columns.
    mean : Tensor
        What `released_mean` returned; integers.
    """

    blocks: Sequence[Block]
    mean: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the integers of rows, as float64 on the device of the mean.

        Notes
        -----
        *Guarantee:* the integers of a row satisfy the bound exactly and depend on that row alone.
        The squared length of a block without the mean is an exact sum of integers, at most
        ``4 columns BLOCK_BOUND^2``; everything else is entry by entry.
        """
        result = torch.empty(
            len(rows), rows.shape[1] + 1, dtype=torch.float64, device=self.mean.device
        )
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE].to(self.mean.device).double()
            result[start : start + len(some)] = self._of(some)
        return result

    def _of(self, rows: Tensor) -> Tensor:
        parts, taken = [], 0
        for block, weight, (first, last) in zip(
            self.blocks, block_weights(self.blocks), leading_columns(self.blocks), strict=True
        ):
            part = rows[:, first : first + block.columns].clone()
            width = last - first
            part[:, :width] -= self.mean[taken : taken + width]
            taken += width
            length = squared_lengths(part).sqrt().clamp(min=1.0)
            parts.append(part * (weight / ROW_LENGTH / length)[:, None])
        parts.append(rows.new_full((len(rows), 1), _CONSTANT / ROW_LENGTH))
        return bounded_integers(torch.cat(parts, dim=1), ROW_BOUND)
