"""Sources of records: tensors that are indexed at once, or a data set item by item."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import positive_integer

__all__ = [
    "Collate",
    "RecordSource",
    "TensorRecords",
    "checked_records",
    "pinned",
    "record_source",
]

Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of items."""


class RecordSource(Protocol):
    """Records that can be looked up by their numbers.

    Attributes
    ----------
    collate : callable or None
        The user's own function that makes batches, if there is one.
    """

    collate: Collate | None

    def __len__(self) -> int:
        """Return how many records there are."""

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the batches of a lot, given the records of each; every record has several rows."""

    def first(self) -> Any:
        """Return something of the shapes and types of a record."""

    @property
    def collated(self) -> Collate:
        """Makes a batch of items like `first`; it does not keep the records alive."""


def pinned(numbers: Tensor, device: torch.device) -> Tensor:
    """Return numbers where a GPU can fetch them from, without anybody waiting for that."""
    return numbers.pin_memory() if device.type == "cuda" else numbers


class TensorRecords:
    """Tensors whose first axis is the records; batches stay on their device."""

    collate: Collate | None = None

    def __init__(self, tensors: tuple[Tensor, ...], *, alone: bool) -> None:
        for tensor in tensors:
            if tensor.layout is not torch.strided or tensor.is_nested:
                kind = "nested" if tensor.is_nested else str(tensor.layout)
                raise InvalidParameterError(
                    f"a tensor of the data is {kind}, of which no rows can be taken: pass dense "
                    "tensors, or a data set whose items are dense"
                )
        lengths = {len(tensor) if tensor.ndim else 0 for tensor in tensors}
        if len(lengths) != 1 or lengths == {0}:
            shapes = [tuple(tensor.shape) for tensor in tensors]
            raise ShapeError(
                f"the tensors of the data have shapes {shapes}: the first axis of each "
                "must be the records"
            )
        self.tensors = tensors
        self._alone = alone
        self.collated: Collate = partial(_stacked, alone=alone)

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self.tensors[0])

    def batches(
        self, lot: Sequence[NDArray[np.int64]], views: int
    ) -> Iterator[Tensor | tuple[Tensor, ...]]:
        """Return the rows of each batch; copies of a row are there to be augmented."""
        device = self.tensors[0].device
        for numbers in lot:
            rows = pinned(torch.from_numpy(np.repeat(numbers, views)), device)
            yield self.rows(rows.to(device, non_blocking=True))

    def rows(self, indices: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return some rows; nothing waits if the indices are on the device already."""
        rows = tuple(tensor[indices.to(tensor.device)] for tensor in self.tensors)
        return rows[0] if self._alone else rows

    def first(self) -> tuple[Tensor, ...]:
        """Return empty tensors."""
        return tuple(tensor.new_empty(tensor.shape[1:]) for tensor in self.tensors)


def _stacked(items: list[tuple[Tensor, ...]], *, alone: bool) -> Tensor | tuple[Tensor, ...]:
    """Return the items one below the other."""
    rows = tuple(torch.stack(each) for each in zip(*items, strict=True))
    return rows[0] if alone else rows


class _DatasetRecords:
    """A map-style data set; a random transform in it makes each view another one."""

    def __init__(self, dataset: Any, collate: Collate | None) -> None:
        self._dataset = dataset
        self.collate = collate
        self.collated: Collate = default_collate if collate is None else collate

    def __len__(self) -> int:
        """Return the length of the data set."""
        return len(self._dataset)

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the collated items of each batch."""
        for numbers in lot:
            items = [self._dataset[number] for number in np.repeat(numbers, views).tolist()]
            yield self.collated(items)

    def first(self) -> Any:
        """Return the first item, of which only shapes and types are looked at."""
        return self._dataset[0]


class _Announced:
    """A batch sampler whose batches are set before each pass: those of one lot."""

    def __init__(self) -> None:
        self.batches: Sequence[list[int]] = ()

    def __iter__(self) -> Iterator[list[int]]:
        """Go through the batches."""
        return iter(self.batches)


class _WorkerRecords(_DatasetRecords):
    """A map-style data set that other processes read and collate, in the order asked for.

    The processes stay from lot to lot. They read ahead within a lot, never into the next one: a lot
    that is drawn counts, so none is drawn before it is needed.
    """

    def __init__(self, dataset: Dataset[Any], collate: Collate | None, workers: int) -> None:
        super().__init__(dataset, collate)
        self._announced = _Announced()
        self._loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=self._announced,
            collate_fn=self.collated,
            num_workers=workers,
            persistent_workers=True,
        )

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the batches of a lot, each as a ``DataLoader`` collates it."""
        self._announced.batches = [np.repeat(numbers, views).tolist() for numbers in lot]
        # An empty lot needs no processes, and torch would start them.
        return iter(self._loader) if lot else iter(())


def record_source(data: Any, collate: Collate | None = None, workers: int = 0) -> RecordSource:
    """Return a way to look up records, or raise if lots cannot be drawn from the data.

    Parameters
    ----------
    data : Dataset, Tensor, or tuple of Tensor
        A map-style data set, or tensors whose first axis is the records.
    collate : callable, optional
        Makes a batch of a list of items of a data set; by default as a ``DataLoader`` does.
    workers : int, optional
        How many processes read a data set; 0 reads it in this one.

    Raises
    ------
    InvalidParameterError
        If the data makes its own batches or cannot be indexed.
    """
    tensors = _tensors_of(data)
    if tensors is not None:
        for name, value in (("workers", workers), ("collate", collate)):
            if value:
                raise InvalidParameterError(
                    f"{name}={value!r} is of no use to tensors, which are indexed at once: leave "
                    "it out, or pass a data set"
                )
        return tensors
    if collate is not None and not callable(collate):
        raise InvalidParameterError(
            f"collate is a {type(collate).__name__}: pass a function of a list of items"
        )
    if workers == 0:
        return _DatasetRecords(data, collate)
    return _WorkerRecords(data, collate, positive_integer(workers, "workers"))


def checked_records(source: RecordSource, records: int) -> RecordSource:
    """Return a source, or raise unless it has as many records as the plan."""
    if len(source) != records:
        raise InvalidParameterError(
            f"the data has {len(source)} records, but the plan is for records={records}: make the "
            "plan with records=len(dataset), and pass several tensors as a tuple"
        )
    return source


def _tensors_of(data: Any) -> TensorRecords | None:
    """Return the data if it is tensors, and None if it is a data set."""
    match data:
        case Tensor():
            return TensorRecords((data,), alone=True)
        # Only the class itself: a subclass may transform what it returns.
        case TensorDataset() if type(data) is TensorDataset:
            return TensorRecords(data.tensors, alone=False)
        # A list of tensors is a data set with a tensor for each record, so it is left to the end.
        case tuple() if data and all(isinstance(tensor, Tensor) for tensor in data):
            return TensorRecords(data, alone=False)
        case DataLoader():
            raise InvalidParameterError(
                "the data is a DataLoader, whose batches are not Poisson samples: the plan would "
                "not hold for them. Pass its data set, training.lots(loader.dataset)"
            )
        case IterableDataset():
            raise InvalidParameterError(
                "the data is an IterableDataset, from which no Poisson sample can be drawn: pass a "
                "data set that has a length and can be indexed"
            )
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise InvalidParameterError(
            f"the data is a {type(data).__name__}: pass a data set that has a length and can be "
            "indexed, or tensors whose first axis is the records"
        )
    return None
