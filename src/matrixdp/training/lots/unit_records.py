"""Units that have several records: those that a step takes, and the mean of their losses."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.lots.batch import Losses, called, losses_of
from matrixdp.training.lots.records import RecordSource
from matrixdp.training.lots.sampling import Coins
from matrixdp.training.units import Units

__all__ = ["UnitLosses", "UnitRecords", "checked_units", "units_in_turn"]

Numbers = NDArray[np.int64]


class _Taken(NamedTuple):
    """The records that a step takes of some units.

    Attributes
    ----------
    units : array
        The numbers of the units, ascending.
    records : array, shape (units, most)
        The numbers of their records. Fewer than the most are filled up with the first of them.
    counts : array
        How many records each unit brings.
    """

    units: Numbers
    records: Numbers
    counts: Numbers


class UnitRecords:
    """A source whose records are units; a batch is the weights of its rows, and the rows.

    The weights of a unit's rows are those of a mean over the records that it brings, and 0 for the
    rows that fill it up. What fills it up is its own, so that nothing of others enters.

    Parameters
    ----------
    source : RecordSource
        The records.
    most : int
        How many records of one unit a step takes at most.
    order, starts : array
        The numbers of the records, sorted by unit, and where each unit begins and the last ends.
    """

    def __init__(self, source: RecordSource, most: int, order: Numbers, starts: Numbers) -> None:
        self.source = source
        self.order = order
        self.starts = starts
        self.collate = source.collate
        self._most = most
        self._taken = _Taken(*(np.empty(0, np.int64) for _ in _Taken._fields))

    def __len__(self) -> int:
        """Return how many units there are."""
        return len(self.starts) - 1

    def drawn(self, units: Numbers, coins: Coins, step: int) -> "UnitRecords":
        """Return the source of a lot, for which it is decided what each of its units brings.

        A unit with more records than a step takes brings some of them, each choice as likely as
        any other; whatever they are, they are clipped together.
        """
        firsts, sizes = self.starts[units], self.starts[units + 1] - self.starts[units]
        owners = np.repeat(np.arange(len(units)), sizes)
        # The index of each record within its unit, before and after the unit is shuffled.
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        records = self.order[firsts[owners] + within]
        records = records[np.lexsort((coins.order(records, step), owners))]
        kept = within < self._most
        table = np.repeat(self.order[firsts][:, None], self._most, axis=1)
        table[owners[kept], within[kept]] = records[kept]
        found = UnitRecords(self.source, self._most, self.order, self.starts)
        found._taken = _Taken(units, table, np.minimum(sizes, self._most))
        return found

    def batches(self, lot: Sequence[Numbers], views: int) -> Iterator[tuple[Tensor, Any]]:
        """Return the batches of the lot that was drawn, given the units of each."""
        indices = [np.searchsorted(self._taken.units, units) for units in lot]
        records = [self._taken.records[one].reshape(-1) for one in indices]
        copies = views // self._most  # of each record
        batches = self.source.batches(records, copies)
        for one, rows in zip(indices, batches, strict=True):
            counts = self._taken.counts[one][:, None]
            weights = (np.arange(self._most) < counts) / counts
            yield torch.from_numpy(np.repeat(weights.reshape(-1), copies)).float(), rows

    def first(self) -> tuple[float, Any]:
        """Return a weight, and something of the shapes and types of a record."""
        return 1.0, self.source.first()

    def collated(self, items: list[tuple[float, Any]]) -> tuple[Tensor, Any]:
        """Return a batch of items like `first`."""
        weights, rows = zip(*items, strict=True)
        return torch.tensor(weights), self.source.collated(list(rows))


def checked_units(source: RecordSource, units: Units | None, labels: object) -> UnitRecords:
    """Return the units of some records, in the order of their labels.

    Parameters
    ----------
    source : RecordSource
        The records.
    units : Units or None
        How many units there are, and how many records of each a step takes; None is an error.
    labels : sequence
        For each record, whose it is: numbers or strings.

    Raises
    ------
    InvalidParameterError
        If there is not one label for each record, or another number of units than the plan has.
    """
    if units is None:
        raise InvalidParameterError(
            "the plan protects single records, and units says whose they are: make the plan with "
            "units=Units(number, most_records) instead of records"
        )
    found = _checked_labels(labels)
    if found.shape != (len(source),):
        raise InvalidParameterError(
            f"units has shape {found.shape}, and the data {len(source)} records: pass one label "
            "for each record, which says whose it is"
        )
    names, owners = np.unique(found, return_inverse=True)
    if len(names) != units.number:
        raise InvalidParameterError(
            f"units names {len(names)} units, but the plan is for number={units.number}: make the "
            "plan with Units(len(set(labels)), ...)"
        )
    order = np.argsort(owners, kind="stable").astype(np.int64)
    starts = np.searchsorted(owners[order], np.arange(units.number + 1))
    return UnitRecords(source, units.most_records, order, starts.astype(np.int64))


def _checked_labels(labels: object) -> NDArray[Any]:
    """Return labels that can be compared, as an array."""
    if labels is None:
        raise InvalidParameterError(
            "units is missing: the plan protects units, so say whose each record is, "
            "training.lots(data, units=labels)"
        )
    found = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if found.dtype.kind == "O" and all(isinstance(one, str) for one in found.flat):
        found = found.astype(str)
    if found.dtype.kind not in "iuUS":
        raise InvalidParameterError(
            f"units has labels of type {found.dtype}: pass integers or strings, one for each record"
        )
    return found


def units_in_turn(source: RecordSource, units: Units) -> UnitRecords:
    """Return units each of which has as many records as a step takes, in their order."""
    whole = len(source) // units.most_records
    edges = np.arange(whole + 1, dtype=np.int64) * units.most_records
    return UnitRecords(source, units.most_records, np.arange(edges[-1]), edges)


class UnitLosses:
    """The losses of units: the mean over the records that each brings, given those of records.

    Parameters
    ----------
    losses : callable
        The user's: one loss for each record or row.
    most : int
        How many records a unit has in a batch.
    views : int
        How many rows each record has.
    """

    def __init__(self, losses: Losses, most: int, views: int) -> None:
        self._losses = losses
        self._most = most
        self._views = views

    def __call__(self, weights: Tensor, batch: Any) -> Tensor:
        """Return one loss for each unit of a batch of `UnitRecords`."""
        records = len(weights) // self._views
        alone = records == self._most
        try:
            found = losses_of(self._losses, batch, records, self._views)
        except ShapeError:
            # Losses may leave out some records by what these are, of which nobody must learn.
            short = called(self._losses, batch) if alone else None
            if short is None or short.ndim != 1 or not len(short) < records:
                raise
            return short.sum()[None] / max(len(short), 1)
        shares = weights[:: self._views].to(found.device)
        # Selected, as zero times infinity is no number.
        counted = torch.where(shares > 0, shares * found, 0.0)
        return counted.reshape(-1, self._most).sum(1)
