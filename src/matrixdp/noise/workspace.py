"""The memory of one thread that fills a tile."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WorkSpace"]


class WorkSpace:
    """Arrays for one block, each allocated when it is first needed.

    Most are not: contiguous values are read, and noisy values written, where they lie. No lock is
    taken, not even one of the standard library's: a fork could leave it held for ever in the child.

    Parameters
    ----------
    length : int
        The most elements of a block.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.rooms: dict[str, NDArray[Any]] = {}

    @property
    def words(self) -> NDArray[np.uint64]:
        """Room for the random words."""
        return self._room("words", np.uint64)

    @property
    def values(self) -> NDArray[np.float64]:
        """Room for values that do not lie as they are read, or would be overwritten."""
        return self._room("values", np.float64)

    @property
    def scales(self) -> NDArray[np.float64]:
        """Room for scales that do not lie as they are read."""
        return self._room("scales", np.float64)

    @property
    def noisy(self) -> NDArray[np.float64]:
        """Room for noisy values on their way to an output that is not contiguous."""
        return self._room("noisy", np.float64)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Room for the marks of undecided elements."""
        return self._room("undecided", np.bool_)

    def holds(self, noisy: NDArray[np.float64]) -> bool:
        """Return whether these noisy values lie here and have yet to be written."""
        return "noisy" in self.rooms and noisy.base is self.noisy

    def wipe(self) -> None:
        """Overwrite every array that was allocated."""
        for room in self.rooms.values():
            room.fill(0)

    def _room(self, name: str, kind: type[np.generic]) -> NDArray[Any]:
        """Return the array of this name, allocated by the first call."""
        if name not in self.rooms:
            self.rooms[name] = np.empty(self.length, dtype=kind)
        return self.rooms[name]
