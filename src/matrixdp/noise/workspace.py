"""The memory of one thread that fills a tile."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["WorkSpace"]


class WorkSpace:
    """Arrays for one block, each allocated when it is first needed.

    Most are not: contiguous values are read, and noisy values written, where they lie.

    Parameters
    ----------
    length : int
        The most elements of a block.
    """

    def __init__(self, length: int) -> None:
        self.length = length

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """Room for the random words."""
        return np.empty(self.length, dtype=np.uint64)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """Room for values that do not lie as they are read, or would be overwritten."""
        return np.empty(self.length, dtype=np.float64)

    @cached_property
    def scales(self) -> NDArray[np.float64]:
        """Room for scales that do not lie as they are read."""
        return np.empty(self.length, dtype=np.float64)

    @cached_property
    def noisy(self) -> NDArray[np.float64]:
        """Room for noisy values on their way to an output that is not contiguous."""
        return np.empty(self.length, dtype=np.float64)

    @cached_property
    def undecided(self) -> NDArray[np.bool_]:
        """Room for the marks of undecided elements."""
        return np.empty(self.length, dtype=np.bool_)

    def holds(self, noisy: NDArray[np.float64]) -> bool:
        """Return whether these noisy values lie here and have yet to be written."""
        return "noisy" in self.__dict__ and noisy.base is self.noisy

    def wipe(self) -> None:
        """Overwrite every array that was allocated."""
        for space in self.__dict__.values():
            if isinstance(space, np.ndarray):
                space.fill(0)
