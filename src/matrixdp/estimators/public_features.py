"""The public map of records to rows within bounds: one record at a time, by public numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import real_array
from matrixdp.queries import PublicBounds
from matrixdp.queries.grid import RecordGrid

__all__ = ["PublicFeatures", "box_by_name", "largest_row_norm", "public_range"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PublicFeatures:
    """An affine map of records that is public, and the bounds of the rows that it gives.

    Attributes
    ----------
    bounds : PublicBounds
        Of the rows.
    centre, scale : ndarray, shape (features,)
        A row is ``(record - centre) / scale``, clipped to the bounds and rounded to a public grid.

    Notes
    -----
    Each row depends on its record alone, in exact arithmetic too: numbers are moved one by one, and
    a `RecordGrid` does the rest. Queries enforce the bounds once more, and change nothing.
    """

    bounds: PublicBounds
    centre: FloatArray
    scale: FloatArray

    @classmethod
    def of(
        cls, columns: int, data_norm: Any, box: Any, *, rescale: bool = True
    ) -> "PublicFeatures":
        """Return the map of an estimator's parameters, of which at least one is given.

        Parameters
        ----------
        columns : int
            The number of features.
        data_norm : float or None
            Rows are clipped to this norm: about 0, or after they were moved.
        box : (lower, upper) or None
            Records are clamped to it, and moved so that its middle is 0. Each column is divided by
            half the length of its range if ``rescale`` says so.
        """
        zero, one = np.zeros(columns), np.ones(columns)
        if box is None:
            return cls(PublicBounds(columns, norm=data_norm), zero, one)
        lower, upper = public_range(box, "bounds", columns)
        # Checks length, sign and order, whatever becomes of the ends.
        PublicBounds(columns, lower=lower, upper=upper)
        centre, half = (upper + lower) / 2.0, (upper - lower) / 2.0
        scale, end = (half, one) if rescale else (one, half)
        inside = PublicBounds(columns, lower=-end, upper=end)
        # A norm that allows the whole box would only make the grid of rows coarser.
        if data_norm is not None and inside.squared_radius > _square(data_norm, columns):
            inside = PublicBounds(columns, norm=data_norm, lower=-end, upper=end)
        return cls(inside, centre, scale)

    @property
    def radius(self) -> float:
        """The largest norm of a row."""
        return math.sqrt(self.bounds.squared_radius)

    @property
    def constant(self) -> float:
        """The number that is put beside each row to fit an intercept: the radius over sqrt(d).

        That is the size of a typical entry. A larger one would take more noise, and for a smaller
        one the intercept would be a larger coefficient, which multiplies noise.
        """
        return self.radius / math.sqrt(self.bounds.columns)

    @property
    def bounds_with_constant(self) -> PublicBounds:
        """The bounds of rows with the constant behind them."""
        columns, lower, upper = self.bounds.columns, self.bounds.lower, self.bounds.upper
        norm = None if self.bounds.norm is None else float(np.hypot(self.radius, self.constant))
        if lower is None or upper is None:
            return PublicBounds(columns + 1, norm=norm)
        return PublicBounds(
            columns + 1,
            norm=norm,
            lower=np.append(lower, 0.0),
            upper=np.append(upper, self.constant),
        )

    def rows(self, records: FloatArray) -> FloatArray:
        """Return the rows of records."""
        moved, lower, upper = records, self.bounds.lower, self.bounds.upper
        if lower is not None and upper is not None:
            # Clamped before it is moved: a difference with a huge number could overflow.
            ends = self.centre + self.scale * lower, self.centre + self.scale * upper
            moved = (np.clip(records, *ends) - self.centre) / self.scale
        grid = RecordGrid(self.bounds)
        return np.asarray(grid(moved) * grid.steps)

    def rows_with_constant(self, records: FloatArray) -> FloatArray:
        """Return the rows of records with the constant behind them."""
        return np.column_stack([self.rows(records), np.full(len(records), self.constant)])

    def raw(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights and intercepts for records, from weights for rows with the constant.

        Parameters
        ----------
        weights : ndarray, shape (features + 1, outputs)
            A linear function of rows with the constant.

        Returns
        -------
        tuple of ndarray
            Weights of shape (outputs, features), and intercepts of shape (outputs,).
        """
        slopes = weights[:-1].T / self.scale
        return slopes, self.constant * weights[-1] - slopes @ self.centre


def _square(norm: Any, columns: int) -> Fraction:
    """Return the square of a norm, or raise if it cannot be enforced."""
    return PublicBounds(columns, norm=norm).squared_radius


def largest_row_norm(records: FloatArray) -> float:
    """Return the largest norm of a record, which is private; 1 if all of them are 0."""
    largest = np.abs(records).max(axis=1, initial=0.0)
    units = records / np.where(largest > 0.0, largest, 1.0)[:, None]
    with np.errstate(over="ignore"):  # beyond the largest float: refused as a bound
        norm = float((largest * np.linalg.norm(units, axis=1)).max())
    return norm if norm > 0.0 else 1.0


def box_by_name(box: Any, names: Sequence[str] | None) -> Any:
    """Return ranges of features in the order of the names; those of unnamed features as they are.

    Raises
    ------
    InvalidParameterError
        If features have names and ranges of their own, but these are not given by name.
    """
    if isinstance(box, Mapping):
        if names is None or set(box) != set(names):
            raise InvalidParameterError(
                f"bounds name the features {sorted(map(str, box))}: X must have columns with "
                "exactly these names"
            )
        ends = [public_range(box[name], f"bounds[{name!r}]", 1) for name in names]
        return tuple(np.concatenate(side) for side in zip(*ends, strict=True))
    if names is not None and isinstance(box, list | tuple | np.ndarray):
        sides = [np.asarray(side) for side in box]
        if not all(side.ndim == 0 or bool(np.all(side == side.flat[0])) for side in sides):
            raise InvalidParameterError(
                "X has names of columns, and the ranges in bounds have none: pass "
                "bounds={'age': (17, 90), ...}, or X as an array"
            )
    return box


def public_range(value: Any, name: str, columns: int) -> tuple[FloatArray, FloatArray]:
    """Return both ends of a range for each column, or raise if it is not a pair of them."""
    if not isinstance(value, list | tuple | np.ndarray) or len(value) != 2:
        raise InvalidParameterError(
            f"{name} must be a pair (lower, upper), each a number or one for each column"
        )
    ends = []
    for end, word in zip(value, ("lower", "upper"), strict=True):
        array = real_array(end, f"{name}: {word}")
        if array.shape not in ((), (columns,)):
            raise ShapeError(
                f"{name}: {word} has shape {array.shape}: pass one number, or one for each of "
                f"the {columns} columns"
            )
        ends.append(np.array(np.broadcast_to(array, (columns,)), dtype=np.float64))
    return ends[0], ends[1]
