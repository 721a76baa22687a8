"""The noise of a block whose sum is spread over ranks: every rank draws that of its own shard."""

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from matrixdp.training.noise.block_noise import BlockNoise
from matrixdp.training.noise.blocks import Block
from matrixdp.training.ranks.fixed_point import on_grid
from matrixdp.training.ranks.group import RankGroup

__all__ = ["NoiseInShards"]


class NoiseInShards:
    """Adds up the sums of ranks, and adds noise to every element on one rank alone.

    Ranks send their sums as integers, each to the rank whose shard it is, which is the only one
    that knows the sum of all. It adds the noise of these elements under the key of the step, and
    sends the result to the others. The key is fresh in every step and kept nowhere: a step that
    fails on the way is never repeated with it.

    Parameters
    ----------
    noise : BlockNoise
        Of the whole block.
    block : Block
        The parameters.
    index : int
        The number of the block. Noise that has to be drawn at once is drawn by one rank, for each
        block by another.
    grid : mapping of Parameter to float
        The step of the integers, for each parameter.
    ranks : RankGroup
        Who takes part.

    Attributes
    ----------
    sizes : list of int
        How many elements each rank has.
    """

    def __init__(
        self,
        noise: BlockNoise,
        block: Block,
        *,
        index: int,
        grid: Mapping[nn.Parameter, float],
        ranks: RankGroup,
    ) -> None:
        self._noise = noise
        self._ranks = ranks
        rows, columns = block.shape
        self.sizes = _shard_sizes(
            rows * columns, ranks.size, at=None if noise.prepare_shards() else index % ranks.size
        )
        self._first = sum(self.sizes[: ranks.number])
        self._steps = _steps_of(block, grid)

    def mean(self, matrix: Tensor, step: int, divisor: float, dtype: torch.dtype) -> Tensor:
        """Return the sum over ranks with the noise of a step, over a divisor; see `BlockNoise`."""
        own = on_grid(matrix.reshape(-1), self._steps, self._ranks.size)
        shard = self._ranks.sum_of_shard(own, self.sizes)
        secret = self._ranks.secret()
        if len(shard):
            shard = self._noise.added_to_shard(shard, self._first, step, secret)
        mean = torch.empty(matrix.shape, dtype=dtype, device=matrix.device)
        mine = slice(self._first, self._first + len(shard))
        torch.div(shard, divisor, out=mean.view(-1)[mine])
        self._ranks.join(mean.view(-1), self.sizes)
        return mean


def _shard_sizes(elements: int, ranks: int, *, at: int | None) -> list[int]:
    """Return how many elements each rank has: equally many, or all of them at one rank."""
    if at is not None:
        return [elements if rank == at else 0 for rank in range(ranks)]
    edges = [rank * elements // ranks for rank in range(ranks + 1)]
    return [stop - start for start, stop in pairwise(edges)]


def _steps_of(block: Block, grid: Mapping[nn.Parameter, float]) -> float | Tensor:
    """Return the step of every element, or one number if all have the same."""
    steps = block.gathered(
        {one: torch.full_like(one, step, dtype=torch.float64) for one, step in grid.items()}
    ).reshape(-1)
    smallest, largest = steps.aminmax()
    return float(smallest) if bool(smallest == largest) else steps
