"""Sources of records: tensors that are indexed at once, or a data set item by item."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import positive_integer
from matrixdp.training.workers import WorkerRecords

__all__ = ["RecordSource", "TensorRecords", "record_source", "tensor_records"]


class RecordSource(Protocol):
    """Records that can be looked up by their numbers."""

    def __len__(self) -> int:
        """Return how many records there are."""

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the batches of a lot, given the records of each; every record has several rows."""


class TensorRecords:
    """Tensors whose first axis is the records; batches stay on their device."""

    def __init__(self, tensors: tuple[Tensor, ...], *, alone: bool) -> None:
        for part in tensors:
            if part.layout is not torch.strided or part.is_nested:
                kind = "nested" if part.is_nested else str(part.layout)
                raise InvalidParameterError(
                    f"a tensor of the data is {kind}, of which no rows can be taken: pass dense "
                    "tensors, or a data set whose items are dense"
                )
        lengths = {len(part) if part.ndim else 0 for part in tensors}
        if len(lengths) != 1 or lengths == {0}:
            raise ShapeError(
                f"the tensors of the data have shapes {[tuple(part.shape) for part in tensors]}: "
                "the first axis of each must be the records"
            )
        self.tensors = tensors
        self._alone = alone

    def __len__(self) -> int:
        """Return the length of the first axis."""
        return len(self.tensors[0])

    def batches(
        self, lot: Sequence[NDArray[np.int64]], views: int
    ) -> Iterator[Tensor | tuple[Tensor, ...]]:
        """Return the rows of each batch; copies of a row are there to be augmented."""
        for numbers in lot:
            yield self.rows(torch.from_numpy(np.repeat(numbers, views)))

    def rows(self, places: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the rows at some places; nothing waits if these are on the device already."""
        parts = tuple(part[places.to(part.device)] for part in self.tensors)
        return parts[0] if self._alone else parts


class _DatasetRecords:
    """A map-style data set; a random transform in it makes each view another one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        """Return the length of the data set."""
        return len(self._dataset)

    def batches(self, lot: Sequence[NDArray[np.int64]], views: int) -> Iterator[Any]:
        """Return the items of each batch, collated as a ``DataLoader`` does it."""
        for numbers in lot:
            items = [self._dataset[number] for number in np.repeat(numbers, views).tolist()]
            yield default_collate(items)


def record_source(data: Any, records: int, workers: int = 0) -> RecordSource:
    """Return a way to look up records, or raise if lots cannot be drawn from the data.

    Parameters
    ----------
    data : Dataset, Tensor, or tuple of Tensor
        A map-style data set, or tensors whose first axis is the records.
    records : int
        How many there must be.
    workers : int, optional
        How many processes read a data set; 0 reads it in this one.

    Raises
    ------
    InvalidParameterError
        If the data makes its own batches, cannot be indexed, or has another number of records.
    """
    source = _source_of(data)
    if workers != 0:
        if isinstance(source, TensorRecords):
            raise InvalidParameterError(
                f"workers={workers!r} are of no use to tensors, which are indexed at once: leave "
                "workers out, or pass a data set"
            )
        source = WorkerRecords(data, positive_integer(workers, "workers"))
    if len(source) != records:
        raise InvalidParameterError(
            f"the data has {len(source)} records, but the plan is for records={records}: make the "
            "plan with records=len(dataset)"
        )
    return source


def tensor_records(data: Any, records: int) -> TensorRecords:
    """Return a way to look up records in tensors, or raise if the data is something else.

    Parameters
    ----------
    data : Tensor, tuple of Tensor, or TensorDataset
        Tensors whose first axis is the records.
    records : int
        How many there must be.
    """
    source = record_source(data, records)
    if not isinstance(source, TensorRecords):
        raise InvalidParameterError(
            f"the data is a {type(data).__name__}: a captured step needs tensors whose first axis "
            "is the records. For a data set, use the loop over training.lots(...)"
        )
    return source


def _source_of(data: Any) -> RecordSource:
    match data:
        case Tensor():
            return TensorRecords((data,), alone=True)
        # Only the class itself: a subclass may transform what it returns.
        case TensorDataset() if type(data) is TensorDataset:
            return TensorRecords(data.tensors, alone=False)
        # A list of tensors is a data set with a tensor for each record, so it is left to the end.
        case tuple() if data and all(isinstance(part, Tensor) for part in data):
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
    return _DatasetRecords(data)
