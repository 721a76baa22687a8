"""One block of elements: what a kernel reads and writes."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Kernel"]


@dataclass(frozen=True)
class Block:
    """Consecutive elements of a release on their way from value to noisy value.

    Attributes
    ----------
    values : NDArray[np.float64]
        The values.
    words : NDArray[np.uint64]
        The first random word of each.
    scales : NDArray[np.float64]
        One scale for all (length 1), or one each.
    noisy : NDArray[np.float64]
        Written: the noisy values, each at once and finished; untouched where undecided.
    undecided : NDArray[np.bool_]
        Written: which elements must go to the exact path.
    """

    # float64 also for float32 releases: values convert exactly, results are rounded when written.
    values: NDArray[np.float64]
    words: NDArray[np.uint64]
    scales: NDArray[np.float64]
    noisy: NDArray[np.float64]
    undecided: NDArray[np.bool_]


class Kernel(Protocol):
    """The fast path over one block.

    Every implementation gives the same bits: a decided element is correctly rounded, and the others
    are left to the exact path. Which elements are undecided may differ. A kernel may own work
    space, and then serves one thread only.
    """

    @property
    def block_length(self) -> int:
        """The most elements of one call."""
        ...

    def wipe(self, length: int) -> None:
        """Overwrite what calls with at most ``length`` elements left of the noise."""
        ...

    def __call__(self, block: Block, grid_bits: int) -> int:
        """Fill ``block.noisy`` and ``block.undecided``; return how many are undecided."""
        ...
