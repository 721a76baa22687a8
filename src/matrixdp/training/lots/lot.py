"""The lot of one step, and its division into batches."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Lot", "batched"]

Records = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lot:
    """The records of one step, drawn by coins; there may be none.

    Made by ``PrivateTraining.lots``, for one call of ``PrivateTraining.step``. Which records it has
    is not public, nor how many.

    Attributes
    ----------
    step : int
        The index of the step in its plan.
    """

    step: int


def batched(numbers: Records, records: int, expected: float, size: int) -> Iterator[Records]:
    """Divide a lot into batches by the numbers of its records.

    The numbers are divided into ranges that depend on the plan alone, and a range with too many
    records of the lot is halved. So a record more or less changes the batches of one range, and
    how the sums of all others are rounded does not depend on it.

    Parameters
    ----------
    numbers : array
        The records of the lot, ascending.
    records : int
        How many records the data set has.
    expected : float
        How many a lot is expected to have.
    size : int
        How many a batch may have.
    """
    edges = np.linspace(0, records, _ranges(expected, size) + 1).astype(np.int64)
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield from _halved(numbers, start, stop, size)


def _ranges(expected: float, size: int) -> int:
    """Return how many ranges there are: few of them should have to be halved."""
    if expected <= size:
        return 1
    # The root of a range's expected number r with r + 4 sqrt(r) = size.
    root = math.sqrt(4.0 + size) - 2.0
    return math.ceil(expected / max(root * root, 1.0))


def _halved(numbers: Records, start: int, stop: int, size: int) -> Iterator[Records]:
    first, last = np.searchsorted(numbers, (start, stop))
    if last - first <= size:
        if first < last:
            yield numbers[first:last]
        return
    middle = (start + stop) // 2
    yield from _halved(numbers, start, middle, size)
    yield from _halved(numbers, middle, stop, size)
