"""Public bounds, known or enforced, on every record: its norm, the range of its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import (
    EqualByValue,
    members_of,
    positive_integer,
    positive_number,
    real_array,
)
from matrixdp.queries.names import Columns
from matrixdp.rounding import float_up, shown_exactly

__all__ = ["PublicBounds", "exact_squared_norm"]

FloatArray = NDArray[np.float64]

# Within these the squares of bounds and of grid steps are normal floats.
_SMALLEST, _LARGEST = 1e-100, 1e100
_MOST_COLUMNS = 2**24
# In words; a statement is for people.
_MOST_LISTED = 20
# A box narrower than this share of the bound that sets its grid would have a few steps only.
_NARROWEST = 2.0**-14


@dataclass(frozen=True, eq=False, repr=False)
class PublicBounds(EqualByValue):
    """What is enforced on every record: a norm by clipping, a box by clamping, or both.

    Choose bounds without looking at the data. A record outside is moved inside: each number is
    clamped to its column's range, then the row is scaled down to the norm.

    Parameters
    ----------
    columns : int or sequence of str
        How many numbers a record has, or their names. With names, columns of tables that have names
        too (pandas, polars, Arrow) are found by name, whatever their order and whatever else the
        table has. Without them columns go by position; a table with names is then refused if the
        ranges differ from column to column.
    norm : float, optional
        The largest Euclidean norm of a record.
    lower, upper : float or array_like of shape (columns,), optional
        The range of each column; one number holds for all columns. Together with ``norm`` the range
        must contain 0, because clipping moves a record towards 0.

    Raises
    ------
    InvalidParameterError, ShapeError
        If no bound is given, a bound has the wrong length, sign or order, or a range is too narrow
        for the grid that records are rounded to.

    Examples
    --------
    >>> PublicBounds(3, norm=1.0)
    PublicBounds(3 columns, norm at most 1)
    >>> PublicBounds(["age", "income"], lower=0, upper=[120, 1e6])
    PublicBounds('age', 'income', column ranges 0 to 120, 0 to 1000000)
    """

    columns: int
    names: tuple[str, ...] | None
    norm: float | None
    lower: FloatArray | None
    upper: FloatArray | None

    def __init__(
        self,
        columns: int | Iterable[str],
        *,
        norm: float | None = None,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
    ) -> None:
        names = _checked_names(columns)
        width = positive_integer(columns if names is None else len(names), "columns")
        if not width <= _MOST_COLUMNS:
            raise InvalidParameterError(f"columns={width} is more than {_MOST_COLUMNS}: pass fewer")
        if (lower is None) != (upper is None):
            raise InvalidParameterError("pass both lower and upper, or neither of them")
        if norm is None and lower is None:
            raise InvalidParameterError(
                "neither norm nor lower and upper is given: without a public bound one record "
                "could change the answer by any amount"
            )
        object.__setattr__(self, "columns", width)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "norm", None if norm is None else _checked_norm(norm))
        object.__setattr__(self, "lower", _side(lower, "lower", width))
        object.__setattr__(self, "upper", _side(upper, "upper", width))
        self._check_box()

    def _check_box(self) -> None:
        if self.lower is None or self.upper is None:
            return
        for index, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            shown = f"lower[{index}]={float(low)!r} and upper[{index}]={float(high)!r}"
            if not low < high:
                raise InvalidParameterError(f"{shown}: lower must be below upper")
            if self.norm is not None and not low <= 0.0 <= high:
                raise InvalidParameterError(
                    f"{shown} exclude 0, but clipping to norm={self.norm!r} moves records towards "
                    "0: widen the range, or leave out norm"
                )
            largest = max(abs(low), abs(high))
            if not _SMALLEST <= largest <= _LARGEST:
                raise InvalidParameterError(
                    f"{shown} must be from {_SMALLEST} to {_LARGEST} in size: rescale the data by "
                    "a public constant"
                )
            unit = largest if self.norm is None else self.norm
            if not high - low >= _NARROWEST * unit:
                raise InvalidParameterError(
                    f"{shown} are too close together for bounds of size {float(unit)!r}: shift or "
                    "rescale the column by a public constant"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return _rebuilt, (self.names or self.columns, self.norm, self.lower, self.upper)

    @property
    def read(self) -> Columns:
        """The columns that are read of a table."""
        sides = (side for side in (self.lower, self.upper) if side is not None)
        alike = all(bool(np.all(side == side[0])) for side in sides)
        return Columns(self.columns, self.names, alike)

    @property
    def intervals(self) -> tuple[FloatArray, FloatArray]:
        """The least and the greatest number that each column can hold, by all bounds together."""
        reach = np.inf if self.norm is None else self.norm
        lower = np.full(self.columns, -reach) if self.lower is None else self.lower
        upper = np.full(self.columns, reach) if self.upper is None else self.upper
        return np.maximum(lower, -reach), np.minimum(upper, reach)

    @property
    def squared_radius(self) -> Fraction:
        """An upper bound of the squared norm of a record, exactly computed."""
        if self.lower is None and self.norm is not None:
            return Fraction(self.norm) ** 2
        lower, upper = self.intervals
        corner = exact_squared_norm(np.maximum(np.abs(lower), np.abs(upper)))
        return corner if self.norm is None else min(corner, Fraction(self.norm) ** 2)

    @property
    def squared_diameter(self) -> Fraction:
        """The smaller of the squared diameters of the ball and the box, exactly computed.

        `Covariance` rests on one of these shapes; elsewhere `squared_distance` bounds two records.
        """
        if self.lower is None and self.norm is not None:
            return 4 * Fraction(self.norm) ** 2
        lower, upper = self.intervals
        diagonal = sum(
            (
                (Fraction(float(b)) - Fraction(float(a))) ** 2
                for a, b in zip(lower, upper, strict=True)
            ),
            start=Fraction(0),
        )
        return diagonal if self.norm is None else min(diagonal, 4 * Fraction(self.norm) ** 2)

    @property
    def squared_distance(self) -> Fraction:
        """A bound of the squared distance of two records that is smaller for a norm and a box.

        For a norm C and ranges from ``-a_i`` to ``b_i``, which contain 0, no product ``x_i y_i`` is
        below ``-a_i b_i``. So ``|x - y|^2 = |x|^2 + |y|^2 - 2 x.y <= 2 C^2 + 2 sum a_i b_i``: for
        numbers that are not negative two records are at most ``sqrt(2) C`` apart.
        """
        if self.lower is None or self.norm is None:
            return self.squared_diameter
        lower, upper = self.intervals
        opposite = sum(
            (
                Fraction(-a) * Fraction(b)
                for a, b in zip(lower.tolist(), upper.tolist(), strict=True)
            ),
            start=Fraction(0),
        )
        return min(self.squared_diameter, 2 * Fraction(self.norm) ** 2 + 2 * opposite)

    @property
    def largest_entries(self) -> FloatArray:
        """The largest absolute value that each column can hold."""
        lower, upper = self.intervals
        return np.maximum(np.abs(lower), np.abs(upper))

    @property
    def widths(self) -> FloatArray:
        """The length of each column's range, rounded up."""
        lower, upper = self.intervals
        exact = [Fraction(float(b)) - Fraction(float(a)) for a, b in zip(lower, upper, strict=True)]
        return np.array([float_up(width) for width in exact])

    def __str__(self) -> str:
        """Say which columns there are, if they have names, and which bounds are enforced."""
        return self.in_words if self.names is None else f"{_listed(self.names)}, {self.in_words}"

    @property
    def in_words(self) -> str:
        """Which bounds are enforced."""
        parts = []
        if self.lower is not None and self.upper is not None:
            ranges = _ranges(self.lower, self.upper)
            # One for all columns, or one for each of them in their order.
            shown = ranges[:1] if len(set(ranges)) == 1 else ranges
            parts.append("column ranges " + ", ".join(shown))
        if self.norm is not None:
            parts.append(f"norm at most {shown_exactly(self.norm)}")
        return " and ".join(parts)

    def __repr__(self) -> str:
        """Show the columns and the bounds."""
        named = self.names and ", ".join(map(repr, self.names))
        return f"PublicBounds({named or f'{self.columns} columns'}, {self.in_words})"


def _listed(names: Sequence[str]) -> str:
    """Return the names of columns, of many only the first."""
    shown = ", ".join(map(repr, names[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    several = "s" if len(names) > 1 else ""
    return f"column{several} {shown}" + (f" and {more} more" if more > 0 else "")


def exact_squared_norm(vector: FloatArray) -> Fraction:
    """Return the sum of the squares of floats, as a rational.

    Examples
    --------
    >>> exact_squared_norm(np.array([0.5, 0.5, 3.0]))
    Fraction(19, 2)
    """
    # Each different number once: the steps of millions of columns are often all the same.
    numbers, times = np.unique(vector, return_counts=True)
    pairs = zip(numbers.tolist(), times.tolist(), strict=True)
    return sum((count * Fraction(number) ** 2 for number, count in pairs), start=Fraction(0))


def _checked_names(columns: int | Iterable[str]) -> tuple[str, ...] | None:
    """Return names of columns, or None for a number of them."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        return None  # text is refused where the number is checked
    names = members_of(columns, "columns", "names of columns, such as ['age', 'hours']")
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise InvalidParameterError(f"columns={names!r} must be names, each once")
    return names


def _checked_norm(norm: float) -> float:
    number = positive_number(norm, "norm")
    if not _SMALLEST <= number <= _LARGEST:
        raise InvalidParameterError(
            f"norm={number!r} is outside its domain: it must be from {_SMALLEST} to {_LARGEST}; "
            "rescale the data by a public constant"
        )
    return number


def _side(value: ArrayLike | None, name: str, columns: int) -> FloatArray | None:
    """Return one end of the box as a read-only vector with a number for each column."""
    if value is None:
        return None
    array = real_array(value, name)
    if array.shape not in ((), (columns,)):
        raise ShapeError(
            f"{name} has shape {array.shape}: pass one number, or one for each of the {columns} "
            "columns"
        )
    side = np.array(np.broadcast_to(array, (columns,)), dtype=np.float64)
    side.setflags(write=False)
    return side


def _ranges(lower: FloatArray, upper: FloatArray) -> list[str]:
    pairs = zip(lower.tolist(), upper.tolist(), strict=True)
    return [f"{shown_exactly(low)} to {shown_exactly(high)}" for low, high in pairs]


def _rebuilt(
    columns: int | tuple[str, ...],
    norm: float | None,
    lower: FloatArray | None,
    upper: FloatArray | None,
) -> PublicBounds:
    return PublicBounds(columns, norm=norm, lower=lower, upper=upper)
