"""Strategies that measure tables of counts set by set: cells are never written out."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import (
    checked_matrix,
    members_of,
    positive_integer,
    positive_vector,
    real_array,
)
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, MOST_ANSWERS, FloatArray, Workload
from matrixdp.workloads.strategies.attribute_sets import (
    MOST_NUMBERED,
    covering_sets,
    members,
    numbered,
    set_costs,
)
from matrixdp.workloads.strategies.residual_answers import (
    answers_of,
    contrast_scales,
    spread_contrasts,
    variances_of,
    whole_contrasts,
)
from matrixdp.workloads.strategies.set_distances import diameter_squared, shares
from matrixdp.workloads.strategies.strategy import Strategy, checked_diameter, checked_norm

__all__ = ["ResidualStrategy"]

Attributes = tuple[int, ...]

_SMALLEST_WEIGHT = 2.0**-60
_LARGEST_WEIGHT = 2.0**20


@dataclass(frozen=True, eq=False, init=False)
class ResidualStrategy(Strategy):
    """What each table of counts says beyond its sums: the measurements of ResidualPlanner.

    For every set S of attributes, the table of their counts is measured by its contrasts: what
    remains of it without the tables of fewer attributes. They are orthonormal, times a weight. The
    number of cells does not matter, only the size of these tables.

    Parameters
    ----------
    dimensions : sequence of int
        The number of cells along each attribute.
    sets : sequence of sequences of int
        The attributes of each S, by number; ``()`` is the number of records. Attributes of one
        cell have no contrasts and are in no set.
    weights : array_like
        The weight of each set, positive.

    Raises
    ------
    InvalidParameterError
        If a table has more than 2**26 cells, or there are more than 2**28 measurements.

    Notes
    -----
    *Measuring in integers.* The contrasts of a table are computed in 64-bit integers, without
    rounding: no more than the number of records times that of the cells, at most 2**56 for 2**30
    records and 2**26 cells (`most_records` says how many records may come). Only then are they
    converted to float and multiplied with the weight of their row, two roundings in all. Other
    published versions of this strategy measure differences of cells with correlated noise; here
    the contrasts are orthogonal, so that independent noise, which can be drawn exactly, is as good.

    References
    ----------
    Xiao, He, Zhang and Kifer, *An optimal and scalable matrix mechanism for noisy marginals under
    convex loss functions*, NeurIPS 2023.

    Examples
    --------
    >>> from matrixdp.workloads import ResidualStrategy, marginals
    >>> strategy = ResidualStrategy([1000] * 12, [(), (0,), (1,)], [1.0, 0.5, 0.5])
    >>> strategy.shape == (1999, 1000**12)
    True
    >>> strategy.check_supports(marginals([1000] * 12, [(0,), (1,)]))
    """

    kind: ClassVar[Literal["residual"]] = "residual"
    sizes: tuple[int, ...]
    sets: tuple[Attributes, ...]
    weights: FloatArray

    def __init__(
        self, dimensions: Sequence[int], sets: Sequence[Sequence[int]], weights: ArrayLike
    ) -> None:
        given = members_of(dimensions, "dimensions", "the numbers of cells, such as [2, 3]")
        sizes = tuple(positive_integer(size, "dimensions") for size in given)
        if not 1 <= len(sizes) <= MOST_NUMBERED:
            raise InvalidParameterError(
                f"dimensions has {len(sizes)} attributes: pass from 1 to {MOST_NUMBERED}"
            )
        groups = members_of(sets, "sets", "the attributes of each set, such as [(), (0,)]")
        checked = tuple(_checked_set(group, sizes) for group in groups)
        if not checked or len(set(checked)) != len(checked):
            raise InvalidParameterError("sets must hold at least one set, and each of them once")
        numbers = positive_vector(weights, "weights")
        if numbers.shape != (len(checked),):
            raise ShapeError(f"weights has shape {numbers.shape}: pass {len(checked)} numbers")
        if not bool(np.all((numbers >= _SMALLEST_WEIGHT) & (numbers <= _LARGEST_WEIGHT))):
            raise InvalidParameterError(
                f"weights must be from {_SMALLEST_WEIGHT:.3g} to {_LARGEST_WEIGHT:g}: scale them, "
                "which changes nothing about the strategy"
            )
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "sets", checked)
        object.__setattr__(self, "weights", numbers)
        if not self.layout[0] <= MOST_ANSWERS:
            raise InvalidParameterError(
                f"the sets have {self.layout[0]} measurements, more than the {MOST_ANSWERS} that "
                "fit in memory: keep fewer attributes in each table, or merge cells"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.sizes, self.sets, self.weights)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return self.sizes

    @property
    def layout(self) -> tuple[int, ...]:
        """The number of measurements; those of the sets follow each other."""
        return (sum(math.prod(self._contrasts(group)) for group in self.sets),)

    def _contrasts(self, group: Attributes) -> tuple[int, ...]:
        return tuple(self.sizes[index] - 1 for index in group)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        return np.array([numbered(group) for group in self.sets], dtype=np.int64)

    @cached_property
    def _sources(self) -> dict[Attributes, Attributes]:
        """For each set, the table that its measurements are made from."""
        covering = covering_sets(self._numbers.tolist())
        return {members(number): members(table) for number, table in covering.items()}

    @cached_property
    def tables(self) -> tuple[Attributes, ...]:
        """The tables of counts that all measurements are made from: sets that no other contains."""
        return tuple(dict.fromkeys(self._sources.values()))

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x``, to ordinary float accuracy."""
        return self._measured(_sums(values.reshape(self.sizes), self.tables))

    def measure(self, histogram: FloatArray) -> FloatArray:
        """Return ``A x`` with an error of at most `measurement_error` over ``|A| x``."""
        counts = histogram.reshape(self.sizes).astype(np.int64)
        return self.measure_tables(_sums(counts, self.tables))

    def measure_tables(self, tables: Mapping[Attributes, NDArray[Any]]) -> FloatArray:
        """Return ``A x`` from counts, with the same bound of the error, without the cells.

        Parameters
        ----------
        tables : mapping from attributes to ndarray of int
            A table of counts for each of `tables`, of at most `most_records` records.
        """
        for group in self.tables:
            shape = tuple(self.sizes[index] for index in group)
            if group not in tables or tables[group].shape != shape:
                raise ShapeError(f"tables must hold counts of shape {shape} for {group}")
            # With floats, or in fewer bits, the contrasts would not be exact.
            if tables[group].dtype != np.int64:
                raise InvalidParameterError(
                    f"tables holds {tables[group].dtype} numbers: pass counts as int64"
                )
        return self._measured(tables)

    def _measured(self, tables: Mapping[Attributes, NDArray[Any]]) -> FloatArray:
        measured = np.empty(self.layout[0])
        for group, weight, part in self._parts():
            source = self._sources[group]
            others = tuple(at for at, index in enumerate(source) if index not in group)
            contrasts = whole_contrasts(np.sum(tables[source], axis=others), range(len(group)))
            scales = _outer([contrast_scales(self.sizes[index]) for index in group])
            measured[part] = ((weight * scales) * contrasts.astype(np.float64)).ravel()
        return measured

    def _parts(self) -> Iterator[tuple[Attributes, float, slice]]:
        """Yield each set with its weight and the slice of its measurements."""
        start = 0
        for group, weight in zip(self.sets, self.weights.tolist(), strict=True):
            stop = start + math.prod(self._contrasts(group))
            yield group, weight, slice(start, stop)
            start = stop

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""
        total = np.zeros(self.sizes)
        for group, weight, part in self._parts():
            contrasts = values.reshape(-1)[part].reshape(self._contrasts(group))
            total += self._broadcast(group, weight * spread_contrasts(contrasts, range(len(group))))
        return total

    def _broadcast(self, group: Attributes, table: FloatArray) -> FloatArray:
        shape = [size if index in group else 1 for index, size in enumerate(self.sizes)]
        return table.reshape(shape)

    @property
    def measurement_error(self) -> float:
        """A bound on the error of `measure`, entry by entry, over ``|A| x``.

        An integer becomes a float and is multiplied: ``(1 + u)^2 - 1``.
        """
        return 2.0 * UNIT_ROUNDOFF * (1.0 + 2.0 * UNIT_ROUNDOFF)

    @property
    def most_records(self) -> int:
        """Of so many records, contrasts are computed in 64-bit integers without overflow."""
        cells = max(math.prod(self.sizes[index] for index in group) for group in self.tables)
        return min(2**62 // cells, 2**53)

    @cached_property
    def rounded_norm(self) -> float:
        """An upper bound of the norm of a column, without the total if that is exact."""
        # A power of two times at most 2**53 records is not rounded.
        exact = (self._numbers == 0) & (np.frexp(self.weights)[0] == 0.5)
        return self._norm(~exact)

    def _norm(self, kept: NDArray[np.bool_]) -> float:
        """Return an upper bound of ``(sum of p_S w_S^2)^(1/2)``: every column has this norm.

        The rows have their weights in floats, off by up to three units for each attribute and one;
        p and the squares are off by about as much.
        """
        terms = shares(self._numbers, self.sizes) * np.square(self.weights)
        total = math.fsum(terms[kept].tolist())
        return math.sqrt(total) * (1.0 + (8 * len(self.sizes) + 16) * UNIT_ROUNDOFF)

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the norm of a column; all are equal up to rounding."""
        return checked_norm(self._norm(np.ones(len(self.sets), dtype=bool)))

    @cached_property
    def diameter(self) -> float:
        """An upper bound of the largest distance of two columns.

        It is exact up to rounding if at most 20 attributes are in some set (see
        `set_distances`).
        """
        squared = diameter_squared(self._numbers, np.square(self.weights), self.sizes)
        rounding = 1.0 + (8 * len(self.sizes) + 16) * UNIT_ROUNDOFF
        return checked_diameter(math.sqrt(squared) * rounding)

    @property
    def errors_are_exact(self) -> bool:
        """Yes, to float accuracy."""
        return True

    def components(self, measurements: FloatArray) -> dict[Attributes, FloatArray]:
        """Return the least-squares estimate of each set's component, as a table of the set."""
        values = measurements.reshape(-1)
        return {
            group: spread_contrasts(
                values[part].reshape(self._contrasts(group)) / weight, range(len(group))
            )
            for group, weight, part in self._parts()
        }

    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate ``A^+ y`` of the histogram, as a vector of cells."""
        if not math.prod(self.sizes) <= LARGEST_HISTOGRAM:
            raise InvalidParameterError(
                f"the histogram has {math.prod(self.sizes)} cells, more than the "
                f"{LARGEST_HISTOGRAM} that fit in memory: ask for tables instead"
            )
        total = np.zeros(self.sizes)
        for group, table in self.components(measurements).items():
            others = math.prod(s for index, s in enumerate(self.sizes) if index not in group)
            total += self._broadcast(group, table / others)
        return total.ravel()

    def answers(self, workload: Workload, measurements: FloatArray) -> FloatArray:
        """Return ``W A^+ y``, from the components that each part of the workload depends on."""
        return answers_of(workload, self.components(measurements))

    def squared_error(self, workload: Workload) -> float:
        """Return ``||W A^+||_F^2``: the sum of the queries' variances at unit noise."""
        costs = set_costs(workload)
        indices = self._indices(costs.sets)
        return math.fsum((costs.costs / np.square(self.weights[indices])).tolist())

    def query_variances(self, workload: Workload) -> FloatArray:
        """Return the variance of each answer at unit noise on each measurement."""
        self.check_supports(workload)
        variances = 1.0 / np.square(self.weights)
        return variances_of(workload, dict(zip(self.sets, variances.tolist(), strict=True)))

    def check_supports(self, workload: Workload) -> None:
        """Raise if the workload depends on a set of attributes that is not measured."""
        if workload.dimensions != self.sizes:
            raise ShapeError(
                f"the strategy is for cells laid out as {self.sizes} and the workload for "
                f"{workload.dimensions}"
            )
        self._indices(set_costs(workload).sets)

    def _indices(self, numbers: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return where sets are among those that are measured, or raise if one is not."""
        order = np.argsort(self._numbers)
        found = np.minimum(np.searchsorted(self._numbers[order], numbers), len(order) - 1)
        indices = order[found]
        missing = numbers[self._numbers[indices] != numbers]
        if missing.size:
            raise InvalidParameterError(
                f"the workload depends on the attributes {members(int(missing[0]))} together, "
                "which the strategy does not measure: add this set, or use optimal_strategy"
            )
        return np.asarray(indices)

    def written_out(self) -> FloatArray:
        """Return ``A`` as a matrix; weights round its entries."""
        columns = np.eye(math.prod(self.sizes))
        return np.stack([self.apply(column) for column in columns], axis=1)

    def named_arrays(self) -> dict[str, FloatArray]:
        """Return ``residual_dimensions``, ``residual_sets`` and ``residual_weights``.

        Sets have a row each, with a 1 for every attribute in them.
        """
        belongs = [[float(at in group) for at in range(len(self.sizes))] for group in self.sets]
        return {
            "residual_dimensions": np.array(self.sizes, dtype=np.float64),
            "residual_sets": np.array(belongs),
            "residual_weights": self.weights,
        }

    @classmethod
    def from_named_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Return the strategy with these arrays, checked like any other."""
        names = {"residual_dimensions", "residual_sets", "residual_weights"}
        if set(arrays) != names:
            raise InvalidParameterError(f"the arrays are not {', '.join(sorted(names))}")
        sizes = real_array(arrays["residual_dimensions"], "residual_dimensions", axes=1)
        belongs = checked_matrix(arrays["residual_sets"], "residual_sets")
        if belongs.shape[1] != len(sizes):
            raise ShapeError("residual_sets must have a column for each of residual_dimensions")
        if not bool(np.all(sizes == np.rint(sizes))):
            raise InvalidParameterError("residual_dimensions must hold integers")
        if not bool(np.all((belongs == 0.0) | (belongs == 1.0))):
            raise InvalidParameterError("residual_sets must hold 0 and 1")
        sets = [tuple(np.flatnonzero(row).tolist()) for row in belongs]
        return cls([int(size) for size in sizes], sets, arrays["residual_weights"])


def _checked_set(group: Any, sizes: tuple[int, ...]) -> Attributes:
    """Return the attributes of a set in order, or raise if it does not name each of them once."""
    wanted = members_of(group, "a set in sets", "its attributes, such as (0,) for the first")
    for index in wanted:
        whole = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if not whole or not 0 <= index < len(sizes) or not sizes[index] > 1:
            raise InvalidParameterError(
                f"sets holds {wanted!r}: name attributes from 0 to {len(sizes) - 1} that have two "
                "or more cells"
            )
    if len(set(wanted)) != len(wanted):
        raise InvalidParameterError(f"sets holds {wanted!r}: name every attribute once")
    cells = math.prod(sizes[index] for index in wanted)
    if not cells <= LARGEST_HISTOGRAM:
        raise InvalidParameterError(
            f"the table of the attributes {wanted!r} has {cells} cells, more than the "
            f"{LARGEST_HISTOGRAM} that fit in memory: keep fewer attributes, or merge their cells"
        )
    return tuple(sorted(int(index) for index in wanted))


def _sums(values: NDArray[Any], tables: Sequence[Attributes]) -> dict[Attributes, NDArray[Any]]:
    """Return the sums of an array over all axes that a table does not keep."""
    return {
        kept: np.sum(values, axis=tuple(at for at in range(values.ndim) if at not in kept))
        for kept in tables
    }


def _outer(parts: Sequence[FloatArray]) -> FloatArray:
    return reduce(np.multiply.outer, parts, np.ones(()))
