"""Units that have several records: those that a step takes, and the mean of their losses."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.training.lots.batch import Losses, losses_of
from matrixdp.training.lots.records import Collate, RecordSource
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
    records : array
        The numbers of their records, unit by unit.
    starts : array
        Where the records of each unit begin, and the last ones end.
    """

    units: Numbers
    records: Numbers
    starts: Numbers


class UnitRecords:
    """A source whose records are units; a batch is the weights of its rows, and the rows.

    Each unit of a batch has as many rows. The weights are those of a mean over the records that a
    unit brings, and 0 for the rows that fill it up. What fills it up is its own, so that nothing of
    others enters, and the shape of a batch does not tell how many records a unit has.

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
        self.collated: Collate = partial(_weighted, source.collated)
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
        starts = np.concatenate([[0], np.cumsum(np.minimum(sizes, self._most))])
        found = UnitRecords(self.source, self._most, self.order, self.starts)
        found._taken = _Taken(units, records[within < self._most], starts)
        return found

    def batches(self, lot: Sequence[Numbers], views: int) -> Iterator[tuple[Tensor, Any]]:
        """Return the batches of the lot that was drawn, given the units of each."""
        copies = views // self._most  # of each record
        places = [self._places(units) for units in lot]
        batches = self.source.batches([self._taken.records[one] for one, _ in places], copies)
        for (_, weights), rows in zip(places, batches, strict=True):
            yield torch.from_numpy(np.repeat(weights, copies)).float(), rows

    def _places(self, units: Numbers) -> tuple[Numbers, NDArray[np.float64]]:
        """Return where the records of a batch are among those taken, and their weights."""
        index = np.searchsorted(self._taken.units, units)
        firsts = self._taken.starts[index][:, None]
        counts = self._taken.starts[index + 1][:, None] - firsts
        row = np.arange(self._most)
        weights = (row < counts) / counts
        return (firsts + np.where(row < counts, row, 0)).reshape(-1), weights.reshape(-1)

    def one_by_one(self, views: int) -> Iterator[Any]:
        """Return the records of each unit of the lot that was drawn, as a batch of its own."""
        return self.source.batches(np.split(self._taken.records, self._taken.starts[1:-1]), views)

    def first(self) -> tuple[float, Any]:
        """Return a weight, and something of the shapes and types of a record."""
        return 1.0, self.source.first()


def _weighted(collated: Collate, items: list[tuple[float, Any]]) -> tuple[Tensor, Any]:
    """Return a batch of items like `UnitRecords.first`."""
    weights, rows = zip(*items, strict=True)
    return torch.tensor(weights), collated(list(rows))


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
            "plan with Units(len(numpy.unique(labels)), ...)"
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
    if found.dtype.kind == "O":  # as data frames have strings, and integers beside missing ones
        for kind in (str, int):
            if all(isinstance(one, kind) and not isinstance(one, bool) for one in found.flat):
                found = found.astype(kind)
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

    Losses that leave out some records of a unit have the mean of those that are left, in which rows
    that fill a unit up count like others.

    Parameters
    ----------
    losses : callable
        The user's: one loss for each row.
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
        found = losses_of(self._losses, batch, records, self._views, 1, alone=alone)
        if len(found) != records:
            return found  # of one unit, of which losses leave out records by what these are
        shares = weights[:: self._views].to(found.device)
        # Selected, as zero times infinity is no number.
        counted = torch.where(shares > 0, shares * found, 0.0)
        return counted.reshape(-1, self._most).sum(1)
