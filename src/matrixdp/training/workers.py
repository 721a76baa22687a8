"""Reading a data set in worker processes, through torch's ``DataLoader``."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

__all__ = ["WorkerRecords"]


class _Announced:
    """A batch sampler whose batches are set before each pass: those of one lot."""

    def __init__(self) -> None:
        self.batches: Sequence[list[int]] = ()

    def __iter__(self) -> Iterator[list[int]]:
        """Go through the batches."""
        return iter(self.batches)


class WorkerRecords:
    """A map-style data set that other processes read and collate, in the order asked for.

    The processes stay from lot to lot. They read ahead within a lot, never into the next one: a lot
    that is drawn counts, so none is drawn before it is needed.

    Parameters
    ----------
    dataset : Dataset
        Has a length and can be indexed.
    workers : int
        How many processes.
    """

    def __init__(self, dataset: Dataset[Any], workers: int) -> None:
        self._dataset = dataset
        self._announced = _Announced()
        self._loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=self._announced,
            num_workers=workers,
            persistent_workers=True,
        )

    def __len__(self) -> int:
        """Return the length of the data set."""
        return len(self._dataset)  # type: ignore[arg-type]

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the batches of a lot, each as a ``DataLoader`` collates it."""
        self._announced.batches = [np.repeat(numbers, views).tolist() for numbers in lot]
        # An empty lot needs no processes, and torch would start them.
        return iter(self._loader) if lot else iter(())
