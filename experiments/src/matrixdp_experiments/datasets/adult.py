"""Adult: census records as 105 numbers, scaled by ranges that are public.

None of the categories and ranges is taken from the records. Categories are those that
``adult.names``, the description beside the data, lists. Ranges come from that description or from
what is generally known; each says which. A number outside of its range is cut to it.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp_experiments.datasets.arrays import damaged
from matrixdp_experiments.datasets.records import DataSet, Records

__all__ = [
    "COLUMNS",
    "WIDTH",
    "AdultCounts",
    "Category",
    "Number",
    "load_adult",
]

_LABELS = {"<=50K": 0, ">50K": 1}


@dataclass(frozen=True)
class Number:
    """A number, scaled to [0, 1] from its public range, if wanted by its logarithm."""

    low: int
    high: int
    logarithmic: bool = False

    def scaled(self, value: int) -> float:
        """Return the number on its scale.

        Examples
        --------
        >>> Number(0, 100).scaled(25), Number(0, 100).scaled(130)
        (0.25, 1.0)
        """
        part = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        if not self.logarithmic:
            return part
        span = self.high - self.low
        return math.log1p(part * span) / math.log1p(span)


class Category:
    """A category, as one column of zeros and ones for each that exists."""

    def __init__(self, *names: str) -> None:
        self.indices = {name: index for index, name in enumerate(names)}


# In the order of the files.
_ATTRIBUTES: tuple[Number | Category, ...] = (
    # age: adult.names says that nobody is below 17; hardly anybody is above 90.
    Number(16, 90),
    # workclass
    Category(
        *("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"),
        *("State-gov", "Without-pay", "Never-worked"),
    ),
    # fnlwgt, how many people a record stands for, in hundredths: about 200 million adults in a
    # survey of about 100,000 people are 200,000 on average, and five times that is a lot.
    Number(0, 1_000_000),
    # education
    Category(
        *("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm"),
        *("Assoc-voc", "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate"),
        *("5th-6th", "Preschool"),
    ),
    # education-num: the 16 levels above, numbered from 1.
    Number(1, 16),
    # marital-status
    Category(
        *("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"),
        *("Married-spouse-absent", "Married-AF-spouse"),
    ),
    # occupation
    Category(
        *("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"),
        *("Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"),
        *("Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"),
        "Armed-Forces",
    ),
    # relationship
    Category("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    # race
    Category("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    # sex
    Category("Female", "Male"),
    # capital-gain and capital-loss: amounts in dollars of up to five digits. Most people have none,
    # and those of others differ by factors, which a logarithm keeps apart.
    Number(0, 99_999, logarithmic=True),
    Number(0, 99_999, logarithmic=True),
    # hours-per-week: a number of two digits, above 0 by adult.names.
    Number(0, 99),
    # native-country
    Category(
        *("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany"),
        *("Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba"),
        *("Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico"),
        *("Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan"),
        *("Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand"),
        *("Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong"),
        "Holand-Netherlands",
    ),
)


def _placed() -> tuple[tuple[tuple[int, Number | Category], ...], int]:
    """Return each attribute with its first column, and the number of all columns."""
    placed, width = [], 0
    for attribute in _ATTRIBUTES:
        placed.append((width, attribute))
        width += len(attribute.indices) if isinstance(attribute, Category) else 1
    return tuple(placed), width


COLUMNS, WIDTH = _placed()


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
