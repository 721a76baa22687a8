"""Strategies: what is measured with noise, and how histograms are estimated from it."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import checked_matrix
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import FloatArray, along_axes
from matrixdp.workloads.strategies.blocks import measured_blocks
from matrixdp.workloads.strategies.compensated import compensated_error, compensated_product
from matrixdp.workloads.strategies.diameters import product_diameter_squared, smallest_inner_product

__all__ = ["LARGEST_TOTAL", "MOST_PAIRS", "Strategy", "checked_diameter", "checked_norm"]

LARGEST_TOTAL = 2**30
"""The most records that a measured histogram may hold."""

MOST_PAIRS = 8192
"""The most cells of which every pair is looked at."""

_SMALLEST_FLOAT = math.ulp(0.0)
# Within these no square or product underflows by more than the bounds below are rounded up.
_LARGEST_ENTRY = 2.0**20
_SMALLEST_NORM = 2.0**-100
_SMALLEST_FACTOR = 2.0**-30
_LARGEST_LOG_SIZE = 200.0
# 2**23 times the most records is 2**53, up to which whole numbers are exact.
_BITS_OF_EXACT_ENTRIES = 23
_TOGETHER = 512


@dataclass(frozen=True, eq=False)
class Strategy:
    """Linear measurements ``A = diag(weights) (F_1 x .. x F_k)`` of a histogram.

    Parameters
    ----------
    factors : sequence of array_like
        One matrix for each attribute, of full row or column rank.
    weights : array_like, optional
        A number for each measurement, laid out along the factors' rows; by default ones. What has
        weight 0 is not measured.

    Examples
    --------
    >>> from matrixdp.workloads import Strategy
    >>> strategy = Strategy([[[1.0, 1.0], [1.0, -1.0]]])
    >>> round(strategy.sensitivity("add-remove"), 12), round(strategy.sensitivity("replace"), 12)
    (1.414213562373, 2.0)
    """

    factors: tuple[FloatArray, ...]
    weights: FloatArray | None

    def __init__(self, factors: Sequence[ArrayLike], weights: ArrayLike | None = None) -> None:
        matrices = tuple(_checked_factor(factor) for factor in factors)
        if not matrices:
            raise InvalidParameterError("factors=() is empty: pass one matrix per attribute")
        # In any order, so that no product on the way leaves the range of floats either.
        sizes = [math.log2(float(np.max(np.abs(matrix)))) for matrix in matrices]
        if not sum(map(abs, sizes)) <= _LARGEST_LOG_SIZE:
            raise InvalidParameterError(
                f"the factors have largest entries of 2**{min(sizes):.0f} to 2**{max(sizes):.0f}: "
                "scale them towards 1, which changes nothing about the strategy"
            )
        object.__setattr__(self, "factors", matrices)
        object.__setattr__(self, "weights", None)
        if weights is not None:
            if any(matrix.shape[0] != matrix.shape[1] for matrix in matrices):
                raise ShapeError("weights need square factors, whose inverse undoes them")
            object.__setattr__(self, "weights", _checked_weights(weights, self.layout))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return tuple(factor.shape[1] for factor in self.factors)

    @property
    def layout(self) -> tuple[int, ...]:
        """The number of measurements along each attribute."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def shape(self) -> tuple[int, int]:
        """Measurements and cells."""
        return (math.prod(self.layout), math.prod(self.dimensions))

    @property
    def _shrinking_first(self) -> list[int]:
        """The attributes in the order in which measuring leaves the least to do."""
        growths = [rows / cells for rows, cells in zip(self.layout, self.dimensions, strict=True)]
        return sorted(range(len(growths)), key=growths.__getitem__)

    @property
    def columns_are_equal(self) -> bool:
        """Whether it only measures the number of records; never said of weights."""
        return self.weights is None and all(_columns_are_equal(part) for part in self.factors)

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x``, laid out along the attributes, to ordinary float accuracy."""
        maps = [lambda array, m=factor: np.tensordot(m, array, 1) for factor in self.factors]
        found = along_axes(maps, values.reshape(self.dimensions), self._shrinking_first)
        return self._weighted(found)

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""
        maps = [lambda array, m=factor: np.tensordot(m.T, array, 1) for factor in self.factors]
        order = reversed(self._shrinking_first)
        return along_axes(maps, self._weighted(values.reshape(self.layout)), order)

    def measure(self, histogram: FloatArray) -> FloatArray:
        """Return ``A x`` with an error of at most `measurement_error` over ``|A| x``.

        Parameters
        ----------
        histogram : ndarray
            Counts, laid out along the attributes.
        """
        if self.weights is not None:
            counts = histogram.reshape(self.dimensions)
            return self.weights * measured_blocks(self.factors, self.weights, counts)
        maps = [
            lambda array, m=factor: compensated_product(m, np.ascontiguousarray(array))
            for factor in self.factors
        ]
        return along_axes(maps, histogram.reshape(self.dimensions), self._shrinking_first)

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
        """An upper bound of the norm of a column, without the measurements that do not round.

        A row of whole multiples of one power of two, of at most 23 bits, is measured exactly: all
        its sums over at most 2**30 records are whole multiples below 2**53. Totals, cells and trees
        are such rows. Bits add up over the factors of a product, and with those of a weight.
        Without weights it is told where all factors but one consist of such rows.
        """
        bits = [_bits_of_rows(factor) for factor in self.factors]
        if self.weights is not None:
            total = _bits_of_weights(self.weights)
            for axis, own in enumerate(bits):
                total = total + own.reshape([-1 if axis == at else 1 for at in range(len(bits))])
            kept = np.where(total > _BITS_OF_EXACT_ENTRIES, self.weights, 0.0)
            return self._norm_of(self.factors, kept)
        worst = max(range(len(bits)), key=lambda place: float(np.max(bits[place])))
        others = sum(float(np.max(own)) for place, own in enumerate(bits) if place != worst)
        rounded = bits[worst] + others > _BITS_OF_EXACT_ENTRIES
        parts = [*self.factors[:worst], self.factors[worst][rounded], *self.factors[worst + 1 :]]
        return self._norm_of(parts, None) if rounded.any() else 0.0

    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate ``A^+ y`` of the histogram, as a vector of cells."""
        values = measurements.reshape(self.layout)
        if self.weights is not None:
            values = values * self.inverse_weights
        maps = [lambda array, m=inverse: np.tensordot(m, array, 1) for inverse in self.inverses]
        return along_axes(maps, values, reversed(self._shrinking_first)).ravel()

    @cached_property
    def inverses(self) -> tuple[FloatArray, ...]:
        """The pseudo-inverses of the factors."""
        return tuple(_pseudo_inverse(factor) for factor in self.factors)

    @cached_property
    def inverse_weights(self) -> FloatArray:
        """The pseudo-inverse of the weights: one over each, 0 for what is not measured."""
        weights = np.ones(self.layout) if self.weights is None else self.weights
        return np.asarray(np.where(weights > 0.0, 1.0 / np.where(weights > 0.0, weights, 1.0), 0.0))

    def sensitivity(self, neighbouring: Neighbouring) -> float:
        """Return an upper bound on how far neighbouring histograms are apart under ``A``.

        The largest norm of a column for adding or removing a record, the largest distance of two
        columns for replacing one; both rounded up. With more than 8,192 cells the latter is found
        through the factors, and with weights bounded by ``2 max |a|^2 - 2 min a_j . a_k``.

        Raises
        ------
        InvalidParameterError
            If it is 0, or so small that floats could not tell it.
        """
        if checked_neighbouring(neighbouring) == "add-remove":
            return self._largest_norm
        return self._diameter

    @cached_property
    def _largest_norm(self) -> float:
        return checked_norm(self._norm_of(self.factors, self.weights))

    def _norm_of(self, factors: Sequence[FloatArray], weights: FloatArray | None) -> float:
        """Return an upper bound of the largest norm of a column of some or all rows."""
        squares = [np.square(factor) for factor in factors]
        slack = 1.0 + (2 * sum(self.layout) + 8 * len(squares) + 8) * UNIT_ROUNDOFF
        if weights is None:
            square = math.prod(float(part.sum(axis=0).max()) for part in squares)
        else:
            maps = [lambda array, m=part: np.tensordot(m.T, array, 1) for part in squares]
            square = float(along_axes(maps, np.square(weights)).max())
        underflow = 4 * math.prod(self.layout) * _SMALLEST_FLOAT
        return math.sqrt(square * slack + underflow) * (1.0 + 2 * UNIT_ROUNDOFF)

    @cached_property
    def _diameter(self) -> float:
        varied = [factor for factor in self.factors if not _columns_are_equal(factor)]
        if self.weights is None and len(varied) <= 1:
            # The others only stretch it: what all columns share stays out of the arithmetic.
            same = [factor[:, :1] for factor in self.factors if _columns_are_equal(factor)]
            stretch = math.prod(float(np.sum(np.square(column))) for column in same)
            stretch *= 1.0 + (2 * sum(self.layout) + 8 * len(same) + 8) * UNIT_ROUNDOFF
            own = _pairwise_diameter(varied[0], 0) if varied else 0.0
            diameter = own * math.sqrt(stretch) * (1.0 + 4 * UNIT_ROUNDOFF)
        elif self.shape[1] <= MOST_PAIRS:
            diameter = _pairwise_diameter(self.written_out(), len(self.factors) + 2)
        else:
            diameter = math.sqrt(self._diameter_squared()) * (1.0 + 8 * UNIT_ROUNDOFF)
        return checked_diameter(diameter)

    def _diameter_squared(self) -> float:
        """Return an upper bound of the squared diameter, from the factors alone.

        With weights it is ``2 max |a|^2 - 2 min a_j . a_k``. The factors' Gram matrices are off by
        ``(rows + 2) u`` of their largest entry, which is on the diagonal.
        """
        if self.weights is not None:
            largest = self._largest_norm**2 * (1.0 + 4 * UNIT_ROUNDOFF)
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

    def _weighted(self, values: FloatArray) -> FloatArray:
        return values if self.weights is None else self.weights * values


def _pairwise_diameter(matrix: FloatArray, roundings: int) -> float:
    """Return an upper bound of the largest distance of two columns; 0 if all are equal.

    Distances are taken after subtracting the first column, so that what all columns share cancels:
    ``|d_j - d_k|^2 = d_j^T d_j + d_k^T d_k - 2 d_j^T d_k``. The differences are brought to a size
    of about 1 by a power of two, which rounds nothing, so that no square that counts underflows.
    The entries of the matrix may have been rounded a few times.
    """
    differences = matrix - matrix[:, :1]
    if not differences.any():
        return 0.0
    exponent = math.frexp(float(np.max(np.abs(differences))))[1]
    differences = np.ldexp(differences, -exponent)
    squares = np.sum(np.square(differences), axis=0)
    largest = 0.0
    for start in range(0, matrix.shape[1], _TOGETHER):
        block = slice(start, start + _TOGETHER)
        products = differences[:, block].T @ differences
        largest = max(largest, float(np.max(squares[block, None] + squares - 2.0 * products)))
    # Inner products and norms are off by rows * u of the norms, the differences by u of themselves.
    margin = 8 * (len(matrix) + 16) * UNIT_ROUNDOFF * float(squares.max())
    entries = 8 * roundings * UNIT_ROUNDOFF * float(np.linalg.norm(matrix, axis=0).max())
    diameter = math.ldexp(math.sqrt(largest + margin) * (1.0 + 4 * UNIT_ROUNDOFF), exponent)
    return (diameter + entries) * (1.0 + 2 * UNIT_ROUNDOFF)


def _bits_of_rows(matrix: FloatArray) -> FloatArray:
    """Return how many bits make every entry of a row a whole multiple of one power of two.

    More than those of an exact entry count as without end.
    """
    _, exponents = np.frexp(np.max(np.abs(matrix), axis=1, keepdims=True))
    bits = np.full(len(matrix), math.inf)
    for count in range(_BITS_OF_EXACT_ENTRIES, -1, -1):
        multiples = np.ldexp(matrix, count - exponents)
        bits[np.all(multiples == np.rint(multiples), axis=1)] = count
    return bits


def _bits_of_weights(weights: FloatArray) -> FloatArray:
    """Return 1 for powers of two, 0 for what is not measured, and no end of bits for the rest."""
    mantissas, _ = np.frexp(weights)
    return np.where(weights == 0.0, 0.0, np.where(mantissas == 0.5, 1.0, math.inf))


def _columns_are_equal(matrix: FloatArray) -> bool:
    return bool(np.all(matrix == matrix[:, :1]))


def checked_norm(norm: float) -> float:
    """Return the largest norm of a column, or refuse one of next to nothing."""
    if not norm >= _SMALLEST_NORM:
        raise InvalidParameterError(
            f"the strategy's columns have norms of at most {norm!r}: scale it up, which "
            "changes nothing about it"
        )
    return norm


def checked_diameter(diameter: float) -> float:
    """Return the distance of columns, or refuse one of 0 or of next to nothing."""
    if diameter == 0.0:
        raise InvalidParameterError(
            "all columns of the strategy are equal: under neighbouring='replace' it measures "
            "nothing but the number of records, which is public; add measurements in which the "
            "cells differ"
        )
    if not diameter >= _SMALLEST_NORM:
        raise InvalidParameterError(
            f"the strategy's columns are at most {diameter!r} apart: scale up the measurements in "
            "which they differ, or leave those out"
        )
    return diameter


def _pseudo_inverse(matrix: FloatArray) -> FloatArray:
    """Return ``A^+``; rows of very different size are brought to one first where that is allowed.

    If the rows are independent, ``(S A)^+ = A^+ S^-1`` for a diagonal S.
    """
    rows, columns = matrix.shape
    norms = np.linalg.norm(matrix, axis=1)
    if rows > columns or not norms.all():
        return np.asarray(linalg.pinv(matrix))
    even = matrix / norms[:, None]
    if rows == columns:
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.inv(even) / norms)
    inverse, rank = linalg.pinv(even, return_rank=True)
    return np.asarray(inverse / norms) if rank == rows else np.asarray(linalg.pinv(matrix))


def _checked_factor(factor: ArrayLike) -> FloatArray:
    matrix = checked_matrix(factor, "factor")
    largest = float(np.max(np.abs(matrix)))
    if not _SMALLEST_FACTOR <= largest <= _LARGEST_ENTRY:
        raise InvalidParameterError(
            f"the largest entry of a factor is {largest:.3g} in size: scale it into "
            f"{_SMALLEST_FACTOR:.3g} to {_LARGEST_ENTRY:g}, which changes nothing about it"
        )
    return matrix


def _checked_weights(weights: ArrayLike, layout: tuple[int, ...]) -> FloatArray:
    array = np.array(checked_matrix(np.atleast_2d(weights).reshape(1, -1), "weights"))
    array = array.reshape(np.shape(weights))
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
    array.setflags(write=False)
    return array
