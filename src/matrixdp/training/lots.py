"""The lot of one step, handed out in batches that the user runs the model on."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.parameters import positive_integer
from matrixdp.training.lot_sum import LotSum
from matrixdp.training.records import RecordSource

__all__ = ["Lot", "batch_sizes", "uneven_sizes"]


def batch_sizes(records: int, most: int) -> list[int]:
    """Return the sizes of the batches of a lot: all but the last have as many records as allowed.

    Parameters
    ----------
    records : int
        Of the lot; there may be none, which makes no batches.
    most : int
        How many a batch may have.
    """
    return [min(most, records - start) for start in range(0, records, most)]


def uneven_sizes(sizes: list[int]) -> list[int]:
    """Divide the last batch in two unequal parts if all batches have the same size.

    An input that all records share, such as positions, may by accident be as long as a batch has
    rows, and would then be taken for the batch. In a batch of another size this is noticed. A
    single record is never divided, and has nothing to be mixed with.

    Parameters
    ----------
    sizes : list of int
        How many records each batch has.
    """
    if not sizes or sizes[-1] == 1 or len(set(sizes)) > 1:
        return sizes
    later = max(1, (sizes[-1] - 1) // 2)
    return [*sizes[:-1], sizes[-1] - later, later]


class Lot:
    """The records of one step, drawn by coins; there may be none.

    Made by `PrivateTraining.lots`. How many records it has is not public.

    Parameters
    ----------
    source : RecordSource
        The data.
    numbers : array
        Which records the lot has.
    total : LotSum
        Takes the losses of its batches.
    views : int
        How many rows each record has.
    uneven : bool, optional
        Whether not all of its batches may have the same size; see `uneven_sizes`.
    """

    def __init__(
        self,
        source: RecordSource,
        numbers: NDArray[np.int64],
        total: LotSum,
        views: int,
        *,
        uneven: bool = False,
    ) -> None:
        self._source = source
        self._numbers = numbers
        self._total = total
        self._views = views
        self._uneven = uneven

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
        sizes = batch_sizes(len(self._numbers), size)
        sizes = uneven_sizes(sizes) if self._uneven else sizes
        # The last part is empty: it comes after the end of the last batch.
        lot = np.split(self._numbers, np.cumsum(sizes, dtype=np.int64))[:-1]
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
