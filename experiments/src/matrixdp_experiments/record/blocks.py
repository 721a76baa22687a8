"""Blocks of columns: which statistic of which map, and how much each kind of block counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Block", "Kind", "block_weights"]

Kind: TypeAlias = Literal[
    "mean-1", "mean-2", "mean-4", "deviation-2", "enlarged-2", "patches", "pixels"
]

# Chosen on held-out images, like every number here; see the page.
_OF_KIND: dict[Kind, float] = {
    "mean-1": 2.43,
    "mean-2": 0.35,
    "mean-4": 2.78,
    "deviation-2": 1.40,
    "enlarged-2": 0.91,
    "patches": 1.2,
    "pixels": 0.55,
}
_EARLY, _LATE = 0.74, 1.28  # of the stem and the first block, and of all others
_SECOND_NETWORK = 1 / 3


@dataclass(frozen=True)
class Block:
    """Some columns that are whitened together, and scaled to norm 1.

    Attributes
    ----------
    kind : str
        Which statistic.
    source : int
        Number of the network, or -1 without one.
    level : int
        Number of the map, or of the set of patches.
    columns : int
        How many.
    """

    kind: Kind
    source: int
    level: int
    columns: int

    @property
    def weight(self) -> float:
        """How much the block counts, before all weights are scaled to norm 1."""
        weight = _OF_KIND[self.kind]
        if self.source >= 0:
            weight *= _EARLY if self.level < 2 else _LATE
        return weight * (_SECOND_NETWORK if self.source > 0 else 1.0)


def block_weights(blocks: Sequence[Block]) -> list[float]:
    """Return the weights of blocks, scaled to norm 1.

    Examples
    --------
    >>> block_weights([Block("pixels", -1, 0, 12), Block("pixels", -1, 1, 48)])
    [0.707..., 0.707...]
    """
    length = sum(block.weight**2 for block in blocks) ** 0.5
    return [block.weight / length for block in blocks]
