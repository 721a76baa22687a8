"""The lot of one step, handed out in batches that the user runs the model on."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.parameters import positive_integer
from matrixdp.training.lot_sum import LotSum
from matrixdp.training.records import RecordSource

__all__ = ["Lot"]


class Lot:
    """The records of one step, drawn by coins; there may be none.

    Made by `PrivateTraining.lots`. How many records it has is not public.
    """

    def __init__(
        self, source: RecordSource, numbers: NDArray[np.int64], total: LotSum, views: int
    ) -> None:
        self._source = source
        self._numbers = numbers
        self._total = total
        self._views = views

    def batches(self, size: int) -> Iterator[Any]:
        """Return the lot in batches of at most ``size`` records, once.

        The size limits the memory that is used; the step does not depend on it, and in the mode
        ``exact`` batches have one record each. Of a plan with
        several views a batch has that many consecutive rows for each record.
        """
        size = positive_integer(size, "size")
        self._total.begin()
        return self._batches(min(size, self._total.largest_batch or size))

    def _batches(self, size: int) -> Iterator[Any]:
        lot = [self._numbers[start : start + size] for start in range(0, len(self._numbers), size)]
        loaded = self._source.batches(lot, self._views)
        try:
            # Loaded before the model is watched: a transform may run models of its own.
            for numbers, batch in zip(lot, loaded, strict=True):
                self._total.expect(len(numbers))
                yield batch
            self._total.check_accumulated()
        finally:
            # Also when the loop is left by break, return or an exception.
            self._total.end()
