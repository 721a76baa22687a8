"""The lot of one step, its division into batches, and the few sizes that these are filled up to."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Division", "Lot", "filled"]

Records = NDArray[np.int64]

# So many standard deviations a batch has room for above its expected number of records.
_ROOM = 4
# Sizes, in standard deviations from the expected one: close where most batches are.
_STEPS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5, _ROOM)
# Matrix products on a GPU like multiples of so many rows.
_MULTIPLE = 8


@dataclass(frozen=True, eq=False)
class Lot:
    """The records of one step, drawn at random; there may be none.

    Made by ``PrivateTraining.lots``, for one call of ``PrivateTraining.step``. Which records it has
    is not public, nor how many.

    Attributes
    ----------
    step : int
        The index of the step in its plan.
    """

    step: int


class Division:
    """How lots are divided into batches, by the numbers of their records.

    The numbers are divided into ranges that depend on the plan alone, and a range with too many
    records of the lot is halved. So a record more or less changes the batches of one range, and
    how the sums of all others are rounded does not depend on it.

    Parameters
    ----------
    records : int
        How many records the data set has.
    expected : float
        How many a lot is expected to have.
    size : int
        How many a batch may have.
    views : int, optional
        How many rows each record has.

    Attributes
    ----------
    sizes : tuple of int
        Ascending; where each size that is met costs something, batches are filled up to these. So
        few are enough that filling up adds a third of a standard deviation of rows, on average.
    """

    def __init__(self, records: int, expected: float, size: int, views: int = 1) -> None:
        variance = 1.0 - expected / records  # of a batch, for each record that it expects
        number = _ranges(expected, variance, size)
        self._edges = np.linspace(0, records, number + 1).astype(np.int64)
        mean = expected / number
        deviation = math.sqrt(variance * mean)
        most = min(size, -(-records // number))
        multiple = _MULTIPLE // math.gcd(_MULTIPLE, views)
        steps = (math.ceil((mean + step * deviation) / multiple) for step in _STEPS)
        self.sizes = tuple(sorted({min(most, multiple * max(step, 1)) for step in steps}))

    def batches(self, numbers: Records) -> Iterator[Records]:
        """Divide a lot, given the numbers of its records, ascending."""
        for start, stop in pairwise(self._edges.tolist()):
            yield from _halved(numbers, start, stop, self.sizes[-1])

    def size_for(self, batch: Records) -> int:
        """Return the size that a batch is filled up to."""
        return self.sizes[bisect_left(self.sizes, len(batch))]


def filled(batch: Records, size: int) -> Records:
    """Fill a batch up with copies of its last record, which are to count for nothing.

    Nothing may depend on records that were not drawn, and made-up ones might be refused by losses
    that take every real one.

    Parameters
    ----------
    batch : array
        The numbers of its records, at least one.
    size : int
        How many it gets.
    """
    found = np.full(size, batch[-1])
    found[: len(batch)] = batch
    return found


def _ranges(expected: float, variance: float, size: int) -> int:
    """Return how many ranges there are: few of them should have to be halved."""
    # The root of a range's expected number r with r + room * sqrt(variance * r) = size.
    half = 0.5 * _ROOM * math.sqrt(variance)
    root = math.sqrt(half * half + size) - half
    # Not one more because of how this was rounded.
    return math.ceil(expected / max(root * root, 1.0) * (1.0 - 2.0**-40))


def _halved(numbers: Records, start: int, stop: int, size: int) -> Iterator[Records]:
    first, last = np.searchsorted(numbers, (start, stop))
    if last - first <= size:
        if first < last:
            yield numbers[first:last]
        return
    middle = (start + stop) // 2
    yield from _halved(numbers, start, middle, size)
    yield from _halved(numbers, middle, stop, size)
