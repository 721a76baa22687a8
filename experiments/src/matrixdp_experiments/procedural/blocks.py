"""Blocks of columns: which statistic of which map, and how much each kind of block counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Block", "Kind", "block_weights"]

Kind: TypeAlias = Literal["mean-1", "mean-2", "mean-4", "deviation-2", "enlarged-2"]

# Chosen on held-out images, like every number here; see the page.
_OF_KIND: dict[Kind, float] = {
    "mean-1": 2.43,
    "mean-2": 0.35,
    "mean-4": 2.78,
    "deviation-2": 1.40,
    "enlarged-2": 0.91,
}
_EARLY, _LATE = 0.74, 1.28  # of the stem and the first block, and of all others
_OTHER_NETWORK = 1 / 3


@dataclass(frozen=True)
class Block:
    """Some columns that are whitened together, and scaled to norm 1.

    Attributes
    ----------
    kind : str
        Which statistic.
    network : int
        Number of the network.
    level : int
        Number of the map.
    columns : int
        How many.
    """

    kind: Kind
    network: int
    level: int
    columns: int

    @property
    def weight(self) -> float:
        """How much the block counts, before all weights are scaled to norm 1."""
        weight = _OF_KIND[self.kind] * (_EARLY if self.level < 2 else _LATE)
        return weight * (_OTHER_NETWORK if self.network else 1.0)


def block_weights(blocks: Sequence[Block]) -> list[float]:
    """Return the weights of blocks, scaled to norm 1.

    Examples
    --------
    >>> block_weights([Block("mean-1", 0, 0, 12), Block("mean-1", 0, 1, 48)])
    [0.707..., 0.707...]
    """
    length = sum(block.weight**2 for block in blocks) ** 0.5
    return [block.weight / length for block in blocks]
