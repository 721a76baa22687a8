"""Adult: census records as 105 numbers, scaled by ranges that are public."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp_experiments.datasets.adult_columns import COLUMNS, WIDTH, Category, Number
from matrixdp_experiments.datasets.arrays import damaged
from matrixdp_experiments.datasets.records import DataSet, Records

__all__ = ["AdultCounts", "load_adult"]

_LABELS = {"<=50K": 0, ">50K": 1}


class AdultCounts(NamedTuple):
    """How many records each file has, and how many of the first are for choosing."""

    train: int
    test: int
    choosing: int


_COUNTS = AdultCounts(train=32_561, test=16_281, choosing=3_000)


def load_adult(train: Path, test: Path, counts: AdultCounts = _COUNTS) -> DataSet:
    """Return the records of both files; class 1 is an income of more than 50,000 dollars.

    Parameters
    ----------
    train, test : Path
        The files ``adult.data`` and ``adult.test``.
    counts : AdultCounts, optional
        What they have to hold.

    Raises
    ------
    FileFormatError
        With the file, and the line that cannot be read.
    """
    everything = _read(train, counts.train)
    first = counts.train - counts.choosing
    return DataSet(
        name="adult",
        classes=len(_LABELS),
        train=everything,
        choosing_train=everything.part(0, first),
        choosing=everything.part(first, counts.train),
        test=_read(test, counts.test),
    )


def _read(path: Path, count: int) -> Records:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except UnicodeDecodeError:
        damaged(path, "cannot be read: it is not a file of the census records")
    # adult.test begins with a line of its own, and both files end with an empty one.
    numbered = [
        (number, line)
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("|")
    ]
    if len(numbered) != count:
        damaged(path, f"has {len(numbered):,} records instead of {count:,}")
    inputs = np.zeros((count, WIDTH), np.float32)
    targets = np.zeros(count, np.int64)
    for row, (number, line) in enumerate(numbered):
        try:
            targets[row] = _fill(inputs[row], line)
        except (KeyError, ValueError):
            # The index and not the value: whoever reads private records here must not print them.
            damaged(path, f"has a line {number} that is not a record of 14 columns and a class")
    return Records(inputs, targets)


def _fill(row: NDArray[np.float32], line: str) -> int:
    """Write the columns of a line into a row of zeros, and return its class.

    Raises
    ------
    KeyError, ValueError
        If a category or class does not exist, or the line has other fields.
    """
    *fields, label = line.split(", ")
    for (start, column), field in zip(COLUMNS, fields, strict=True):
        match column:
            case Number():
                row[start] = column.scaled(int(field))
            # An unknown category has no column: all of its attribute's are zero.
            case Category() if field != "?":
                row[start + column.indices[field]] = 1.0
    return _LABELS[label.strip().removesuffix(".")]  # adult.test ends its classes with a dot
