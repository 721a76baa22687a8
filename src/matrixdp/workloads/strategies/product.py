"""Strategies that are one Kronecker product of matrices, with a weight for each measurement."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import checked_matrix, real_array
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads import accuracy
from matrixdp.workloads.operator import FloatArray, Workload, along_axes
from matrixdp.workloads.strategies.diameters import (
    columns_are_equal,
    pairwise_diameter,
    product_diameter_squared,
    smallest_inner_product,
)
from matrixdp.workloads.strategies.measuring import (
    MOST_BITS,
    bits_of_rows,
    bits_of_weights,
    compensated_error,
    compensated_product,
    measured_blocks,
)
from matrixdp.workloads.strategies.strategy import (
    MOST_PAIRS,
    Strategy,
    checked_diameter,
    checked_norm,
)

__all__ = ["ProductStrategy"]

_SMALLEST_FLOAT = math.ulp(0.0)
# Within these no square or product underflows by more than the bounds below are rounded up.
_LARGEST_ENTRY = 2.0**20
_SMALLEST_FACTOR = 2.0**-30
_LARGEST_LOG_SIZE = 200.0


@dataclass(frozen=True, eq=False)
class ProductStrategy(Strategy):
    """Linear measurements of a histogram: a weighted Kronecker product.

    The matrix of measurements is ``A = diag(weights) (F_1 x .. x F_k)``.

    Parameters
    ----------
    factors : sequence of array_like
        One matrix for each attribute, of full row or column rank.
    weights : array_like, optional
        A number for each measurement, laid out along the factors' rows; by default ones.
        Measurements of weight 0 are not made.

    Examples
    --------
    >>> from matrixdp.workloads import ProductStrategy
    >>> strategy = ProductStrategy([[[1.0, 1.0], [1.0, -1.0]]])
    >>> round(strategy.sensitivity("add-remove"), 12), round(strategy.sensitivity("replace"), 12)
    (1.414213562373, 2.0)
    """

    kind: ClassVar[Literal["product"]] = "product"
    factors: tuple[FloatArray, ...]
    weights: FloatArray | None

    def __init__(self, factors: Sequence[ArrayLike], weights: ArrayLike | None = None) -> None:
        matrices = tuple(_checked_factor(factor) for factor in factors)
        if not matrices:
            raise InvalidParameterError("factors=() is empty: pass one matrix per attribute")
        # Sizes count whatever their sign, so that no partial product leaves the range of floats.
        sizes = [math.log2(float(np.max(np.abs(matrix)))) for matrix in matrices]
        if not sum(map(abs, sizes)) <= _LARGEST_LOG_SIZE:
            raise InvalidParameterError(
                f"the factors have largest entries of 2**{min(sizes):.0f} to 2**{max(sizes):.0f}: "
                "scale them towards 1, which changes nothing about the strategy"
            )
        # The class is frozen, which is how dataclasses set fields in an __init__ of their own.
        object.__setattr__(self, "factors", matrices)
        object.__setattr__(self, "weights", None)
        if weights is not None:
            # Otherwise A^+ is not F^+ diag(1 / w), and estimates would not be least squares.
            if any(matrix.shape[0] != matrix.shape[1] for matrix in matrices):
                raise ShapeError("weights need square factors, whose inverse undoes them")
            object.__setattr__(self, "weights", _checked_weights(weights, self.layout))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.factors, self.weights)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return tuple(factor.shape[1] for factor in self.factors)

    @property
    def layout(self) -> tuple[int, ...]:
        """The number of measurements along each attribute."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def _shrinking_first(self) -> list[int]:
        """The attributes in the order in which measuring leaves the smallest arrays."""
        growths = [rows / cells for rows, cells in zip(self.layout, self.dimensions, strict=True)]
        return sorted(range(len(growths)), key=growths.__getitem__)

    @property
    def columns_are_equal(self) -> bool:
        """Whether it only measures the number of records; not decided for weights."""
        return self.weights is None and all(columns_are_equal(part) for part in self.factors)

    def scaled(self, scale: float) -> "ProductStrategy":
        """Return the product with all entries multiplied, to float accuracy; without weights."""
        factors = list(self.factors)
        # One factor takes the scale, and the smallest has the fewest entries to round.
        index = min(range(len(factors)), key=lambda index: factors[index].size)
        factors[index] = factors[index] * scale
        return ProductStrategy(factors)

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x``, laid out along the attributes, to ordinary float accuracy."""
        maps = [lambda array, m=factor: np.tensordot(m, array, 1) for factor in self.factors]
        found = along_axes(maps, values.reshape(self.dimensions), self._shrinking_first)
        return self._weighted(found)

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""
        maps = [lambda array, m=factor: np.tensordot(m.T, array, 1) for factor in self.factors]
        # What shrinks on the way down grows on the way up, so it comes last here.
        order = reversed(self._shrinking_first)
        return along_axes(maps, self._weighted(values.reshape(self.layout)), order)

    def _weighted(self, values: FloatArray) -> FloatArray:
        return values if self.weights is None else self.weights * values

    def measure(self, histogram: FloatArray) -> FloatArray:
        """Return ``A x`` with an error of at most `measurement_error` over ``|A| x``."""
        counts = histogram.reshape(self.dimensions)
        if self.weights is not None:
            # Weights come last, so that they add one rounding to each measurement.
            return self.weights * measured_blocks(self.factors, self.weights, counts)
        # The default argument binds each factor; a closure would see the last one only.
        maps = [
            lambda array, m=factor: compensated_product(m, np.ascontiguousarray(array))
            for factor in self.factors
        ]
        return along_axes(maps, counts, self._shrinking_first)

    @property
    def measurement_error(self) -> float:
        """A bound on the error of `measure`, entry by entry, over ``|A| x``.

        With e the errors of the compensated products, and u for the weights, it is
        ``prod(1 + e) - 1 <= sum(e) + sum(e)^2``.
        """
        errors = [compensated_error(factor.shape[1]) for factor in self.factors]
        total = sum(errors) + (0.0 if self.weights is None else UNIT_ROUNDOFF)
        return (total + total**2) * (1.0 + (len(errors) + 4) * UNIT_ROUNDOFF)

    @cached_property
    def rounded_norm(self) -> float:
        """An upper bound of the norm of a column, without rows that are exact (`measuring`).

        Without weights exact rows are left out only of the factor with the most bits.
        """
        bits = [bits_of_rows(factor) for factor in self.factors]
        if self.weights is not None:
            # Bits of rows along each axis, broadcast over the layout of the measurements.
            total = bits_of_weights(self.weights)
            for axis, own in enumerate(bits):
                total = total + own.reshape([-1 if axis == at else 1 for at in range(len(bits))])
            kept = np.where(total > MOST_BITS, self.weights, 0.0)
            return self._norm_of(self.factors, kept)
        # All rows of the other factors are taken to have their factor's most bits.
        worst = max(range(len(bits)), key=lambda index: float(np.max(bits[index])))
        others = sum(float(np.max(own)) for index, own in enumerate(bits) if index != worst)
        rounded = bits[worst] + others > MOST_BITS
        parts = [*self.factors[:worst], self.factors[worst][rounded], *self.factors[worst + 1 :]]
        return self._norm_of(parts, None) if rounded.any() else 0.0

    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate ``A^+ y`` of the histogram, as a vector of cells."""
        values = measurements.reshape(self.layout)
        if self.inverse_weights is not None:
            values = values * self.inverse_weights
        maps = [lambda array, m=inverse: np.tensordot(m, array, 1) for inverse in self.inverses]
        return along_axes(maps, values, reversed(self._shrinking_first)).ravel()

    @cached_property
    def inverses(self) -> tuple[FloatArray, ...]:
        """The pseudo-inverses of the factors."""
        return tuple(_pseudo_inverse(factor) for factor in self.factors)

    @cached_property
    def inverse_weights(self) -> FloatArray | None:
        """The pseudo-inverse of the weights: one over each, 0 where nothing is measured."""
        if self.weights is None:
            return None
        made = self.weights > 0.0
        return np.asarray(np.where(made, 1.0 / np.where(made, self.weights, 1.0), 0.0))

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a column."""
        return checked_norm(self._norm_of(self.factors, self.weights))

    def _norm_of(self, factors: Sequence[FloatArray], weights: FloatArray | None) -> float:
        """Return an upper bound of the largest norm of a column of some or all rows."""
        squares = [np.square(factor) for factor in factors]
        # A sum of r squares is off by at most (r + 1) u, in whatever order it is taken.
        slack = 1.0 + (2 * sum(self.layout) + 8 * len(squares) + 8) * UNIT_ROUNDOFF
        if weights is None:
            square = math.prod(float(part.sum(axis=0).max()) for part in squares)
        else:
            maps = [lambda array, m=part: np.tensordot(m.T, array, 1) for part in squares]
            square = float(along_axes(maps, np.square(weights)).max())
        # Squares below the smallest normal float lose up to the smallest float each.
        underflow = 4 * math.prod(self.layout) * _SMALLEST_FLOAT
        return math.sqrt(square * slack + underflow) * (1.0 + 2 * UNIT_ROUNDOFF)

    @cached_property
    def diameter(self) -> float:
        """An upper bound of the largest distance of two columns.

        With more than 8,192 cells it is found through the factors, and with weights bounded by
        ``2 max |a|^2 - 2 min a_j . a_k``.
        """
        varied = [factor for factor in self.factors if not columns_are_equal(factor)]
        if self.weights is None and len(varied) <= 1:
            # The others only stretch it, so that what all columns share stays out of the
            # arithmetic: beside a heavy total a small distance would be lost in rounding.
            same = [factor[:, :1] for factor in self.factors if columns_are_equal(factor)]
            stretch = math.prod(float(np.sum(np.square(column))) for column in same)
            stretch *= 1.0 + (2 * sum(self.layout) + 8 * len(same) + 8) * UNIT_ROUNDOFF
            own = pairwise_diameter(varied[0], 0) if varied else 0.0
            diameter = own * math.sqrt(stretch) * (1.0 + 4 * UNIT_ROUNDOFF)
        elif self.shape[1] <= MOST_PAIRS:
            # An entry of a product is rounded once per factor and once for its weight.
            diameter = pairwise_diameter(self.written_out(), len(self.factors) + 2)
        else:
            diameter = math.sqrt(self._diameter_squared()) * (1.0 + 8 * UNIT_ROUNDOFF)
        return checked_diameter(diameter)

    def _diameter_squared(self) -> float:
        """Return an upper bound of the squared diameter, from the factors alone.

        The factors' Gram matrices are off by ``(rows + 2) u`` of their largest entry, which is on
        the diagonal.
        """
        if self.weights is not None:
            # |a_j - a_k|^2 = |a_j|^2 + |a_k|^2 - 2 a_j . a_k, each part at its worst.
            largest = self.largest_norm**2 * (1.0 + 4 * UNIT_ROUNDOFF)
            smallest = smallest_inner_product(self.factors, self.weights)
            return 2.0 * (largest - max(smallest, -largest)) * (1.0 + 4 * UNIT_ROUNDOFF)
        grams = [factor.T @ factor for factor in self.factors]
        sizes = math.prod(float(np.max(np.diagonal(gram))) for gram in grams)
        margin = 8 * UNIT_ROUNDOFF * sum(rows + 8 for rows in self.layout) * sizes
        return (product_diameter_squared(grams) + margin) * (1.0 + 4 * UNIT_ROUNDOFF)

    def written_out(self) -> FloatArray:
        """Return ``A`` as a matrix; products and weights round its entries."""
        matrix: FloatArray = np.ones((1, 1))
        for factor in self.factors:
            matrix = np.asarray(np.kron(matrix, factor), dtype=np.float64)
        return matrix if self.weights is None else self.weights.reshape(-1, 1) * matrix

    @property
    def errors_are_exact(self) -> bool:
        """Yes, to float accuracy."""
        return True

    def squared_error(self, workload: Workload) -> float:
        """Return ``||W A^+||_F^2``: the sum of the queries' variances at unit noise."""
        return accuracy.squared_error(workload, self.inverses, self.inverse_weights)

    def query_variances(self, workload: Workload) -> FloatArray:
        """Return the variance of each answer at unit noise on each measurement."""
        return accuracy.query_variances(workload, self.inverses, self.inverse_weights)

    def check_supports(self, workload: Workload) -> None:
        """Raise if ``W A^+ A`` is not W, tried on fixed random vectors, factor by factor."""
        if self.weights is not None:
            self._check_weights_support(workload)
        accuracy.check_factors_support(workload, self.factors, self.inverses)

    def _check_weights_support(self, workload: Workload) -> None:
        """Raise if the queries need measurements of weight 0, which no single factor shows."""
        # The seed is fixed, so that the same strategy is always accepted or always refused.
        tried = np.random.default_rng(0).standard_normal(self.dimensions)
        estimate = self.reconstruct(self.apply(tried)).reshape(self.dimensions)
        lost = workload.apply((tried - estimate).ravel())
        if not accuracy.is_negligible(lost, workload.magnitudes(), tried):
            raise InvalidParameterError(
                "the weights leave out measurements that the workload needs: give them weight, or "
                "use optimal_strategy"
            )

    def named_arrays(self) -> dict[str, FloatArray]:
        """Return ``factor_0``, ``factor_1`` and so on, and ``weights`` if there are any."""
        arrays = {f"factor_{index}": factor for index, factor in enumerate(self.factors)}
        return arrays if self.weights is None else arrays | {"weights": self.weights}

    @classmethod
    def from_named_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Return the strategy with these arrays, checked like any other."""
        names = [f"factor_{n}" for n in range(sum(name.startswith("factor_") for name in arrays))]
        if set(arrays) - {"weights"} != set(names):
            raise InvalidParameterError(
                "the arrays are not factor_0, factor_1 and so on, with or without weights"
            )
        return cls([arrays[name] for name in names], arrays.get("weights"))


def _checked_factor(factor: ArrayLike) -> FloatArray:
    """Return a matrix with entries of moderate size, or raise if it is not one."""
    matrix = checked_matrix(factor, "factor")
    largest = float(np.max(np.abs(matrix)))
    if not _SMALLEST_FACTOR <= largest <= _LARGEST_ENTRY:
        raise InvalidParameterError(
            f"the largest entry of a factor is {largest:.3g} in size: scale it into "
            f"{_SMALLEST_FACTOR:.3g} to {_LARGEST_ENTRY:g}, which changes nothing about it"
        )
    return matrix


def _checked_weights(weights: ArrayLike, layout: tuple[int, ...]) -> FloatArray:
    """Return weights in the layout of the measurements, or raise if they are not."""
    array = np.array(real_array(weights, "weights"))
    if array.shape != layout:
        raise ShapeError(
            f"weights has shape {array.shape}: the factors measure along {layout}; pass one weight "
            "for each measurement"
        )
    inside = (array >= _SMALLEST_FACTOR) & (array <= _LARGEST_ENTRY)
    if not bool(np.all(inside | (array == 0.0))) or not array.any():
        raise InvalidParameterError(
            f"weights must be 0 or from {_SMALLEST_FACTOR:.3g} to {_LARGEST_ENTRY:g}, not all 0"
        )
    # Sensitivities are cached, so that weights must not change after they were computed.
    array.setflags(write=False)
    return array


def _pseudo_inverse(matrix: FloatArray) -> FloatArray:
    """Return ``A^+``; independent rows are brought to one size first.

    If the rows are independent, ``(S A)^+ = A^+ S^-1`` for a diagonal S. A heavy total beside
    light contrasts would otherwise push these below the tolerance for the rank.
    """
    rows, columns = matrix.shape
    norms = np.linalg.norm(matrix, axis=1)
    if rows > columns or not norms.all():
        return np.asarray(scipy.linalg.pinv(matrix))
    even = matrix / norms[:, None]
    if rows == columns:
        # A singular matrix is no error here: the general way below finds its rank.
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.inv(even) / norms)
    inverse, rank = scipy.linalg.pinv(even, return_rank=True)
    # With dependent rows the scaling would change the least-squares estimate.
    return np.asarray(inverse / norms) if rank == rows else np.asarray(scipy.linalg.pinv(matrix))
