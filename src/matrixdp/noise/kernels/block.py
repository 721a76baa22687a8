"""One block of elements: what a kernel reads and writes."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Block", "Kernel"]


class Block(NamedTuple):
    """Consecutive elements of a release on their way from value to noisy value.

    Attributes
    ----------
    values : NDArray
        The values: float64, or float32 for a kernel that takes it.
    words : NDArray[np.uint64]
        The first random word of each.
    scales : NDArray[np.float64]
        One scale for all (length 1), or one each.
    noisy : NDArray
        Written: the noisy values, each at once and finished; untouched where undecided. Of the type
        of the values.
    undecided : NDArray[np.bool_]
        Written: which elements must go to the exact path.
    """

    # Arithmetic is float64 also for float32 releases: values convert exactly, and results are
    # rounded when they are written, by the kernel if it takes float32 and else afterwards.
    values: NDArray[Any]
    words: NDArray[np.uint64]
    scales: NDArray[np.float64]
    noisy: NDArray[Any]
    undecided: NDArray[np.bool_]


class Kernel(Protocol):
    """The fast path over one block.

    Every implementation gives the same bits: a decided element is correctly rounded, and the others
    are left to the exact path. Which elements are undecided may differ. A kernel may own work
    space, and then serves one thread only.
    """

    @property
    def takes_single(self) -> bool:
        """Whether values and noisy values may be float32."""
        ...

    @property
    def block_length(self) -> int:
        """The most elements of one call."""
        ...

    def prepare(self, value_bytes: int) -> None:
        """Do what takes long before the first call with values of 8 bytes or 4.

        What 8 bytes need is done when a kernel is made.
        """
        ...

    def wipe(self, length: int) -> None:
        """Overwrite what calls with at most ``length`` elements left of the noise."""
        ...

    def __call__(self, block: Block, grid_bits: int) -> int:
        """Fill ``block.noisy`` and ``block.undecided``; return how many are undecided."""
        ...
