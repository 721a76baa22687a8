"""Several products of measurements, one under the other.

McKenna, Miklau, Hay and Machanavajjhala (2018) call such a strategy a union of products.
"""

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.composed import Product
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, MOST_ANSWERS, FloatArray, Workload
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.strategy import (
    MOST_PAIRS,
    Strategy,
    checked_diameter,
    checked_norm,
)

__all__ = ["StackedStrategy", "squared_diameter"]

# Columns compared with all others at once: 256 x 8,192 distances are 16 megabytes.
_TOGETHER = 256
# The slope at which LSMR stops, relative to the size of the residual times that of A.
_SLOPE = 1e-10
_MOST_ITERATIONS = 20_000
# The code that LSMR returns when it runs out of steps.
_UNFINISHED = 7
_NAME = re.compile(r"part_(0|[1-9]\d{0,5})_factor_(0|[1-9]\d{0,5})")


@dataclass(frozen=True, eq=False)
class StackedStrategy(Strategy):
    """Linear measurements that are several products, one under the other.

    Parts may have different scales, which are part of their factors.

    Parameters
    ----------
    parts : sequence of ProductStrategy
        Products without weights, on the same cells; at most 2**28 measurements in all.

    Notes
    -----
    A workload is answered by a stack with as many parts as the workload has products. The error of
    each part alone on its own product bounds the error from above: least squares on all
    measurements, which have equal and independent noise, is never worse for any query (Gauss and
    Markov).

    References
    ----------
    McKenna, Miklau, Hay and Machanavajjhala, *Optimizing error of high-dimensional statistical
    queries under differential privacy*, PVLDB 11 (2018).

    Examples
    --------
    >>> from matrixdp.workloads import ProductStrategy, StackedStrategy
    >>> rows = ProductStrategy([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 1.0]]])
    >>> total = ProductStrategy([[[2.0, 2.0]], [[1.0, 1.0, 1.0]]])
    >>> stack = StackedStrategy([rows, total])
    >>> stack.shape, round(stack.sensitivity("add-remove") ** 2, 12)
    ((3, 6), 5.0)
    """

    kind: ClassVar[Literal["stack"]] = "stack"
    parts: tuple[ProductStrategy, ...]

    def __init__(self, parts: Sequence[ProductStrategy]) -> None:
        members = tuple(parts)
        if not members:
            raise InvalidParameterError("parts=() is empty: pass at least one ProductStrategy")
        for member in members:
            if not isinstance(member, ProductStrategy):
                raise InvalidParameterError(
                    f"parts holds a {type(member).__name__}: pass products, each a ProductStrategy"
                )
            # The bounds below multiply factors, and weights would need a product written out.
            if member.weights is not None:
                raise InvalidParameterError(
                    "parts holds a strategy with weights: pass products without; scale their "
                    "factors instead"
                )
            if member.dimensions != members[0].dimensions:
                raise ShapeError(
                    f"parts are for cells laid out as {members[0].dimensions} and as "
                    f"{member.dimensions}: use one layout"
                )
        measurements = sum(member.shape[0] for member in members)
        if not measurements <= MOST_ANSWERS:
            raise InvalidParameterError(
                f"parts make {measurements} measurements, more than the {MOST_ANSWERS} that fit in "
                "memory: measure less"
            )
        object.__setattr__(self, "parts", members)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.parts,)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return self.parts[0].dimensions

    @property
    def layout(self) -> tuple[int]:
        """The number of measurements: those of all parts in one row."""
        return (sum(part.shape[0] for part in self.parts),)

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x``, part after part, to ordinary float accuracy."""
        return np.concatenate([part.apply(values).ravel() for part in self.parts])

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""
        # Measurements of the parts follow each other, and A^T sums over them.
        ends = np.cumsum([0, *(part.shape[0] for part in self.parts)]).tolist()
        flat = values.ravel()
        total = np.zeros(self.dimensions)
        for part, (start, stop) in zip(self.parts, pairwise(ends), strict=True):
            total += part.apply_transpose(flat[start:stop])
        return total

    def measure(self, histogram: FloatArray) -> FloatArray:
        """Return ``A x`` with an error of at most `measurement_error` over ``|A| x``."""
        return np.concatenate([part.measure(histogram).ravel() for part in self.parts])

    @property
    def measurement_error(self) -> float:
        """A bound on the error of `measure`, entry by entry, over ``|A| x``: that of the parts."""
        return max(part.measurement_error for part in self.parts)

    @property
    def rounded_norm(self) -> float:
        """An upper bound of the norm of a column; no measurement is taken to be exact."""
        return self.largest_norm

    def written_out(self) -> FloatArray:
        """Return ``A`` as a matrix; the products round its entries."""
        return np.concatenate([part.written_out() for part in self.parts])

    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate of the histogram, as a vector of cells.

        Of all histograms that are closest to the measurements it is the smallest, as with ``A^+``.
        It is found by the method of Fong and Saunders (2011), through the operators, until the
        slope ``||A^T r||`` of the residual r is 1e-10 of ``||A|| ||r||``: the rest is then far
        below the noise, which is of the size of r.

        Warns
        -----
        RuntimeWarning
            If 20,000 steps were not enough, which only measurements of very different size can
            cause. The histogram is then the closest that was found.
        """
        operator = scipy.sparse.linalg.LinearOperator(
            self.shape,
            matvec=self.apply,
            rmatvec=lambda values: self.apply_transpose(values).ravel(),
            dtype=np.float64,
        )
        estimate, rest = np.zeros(self.shape[1]), measurements.ravel()
        # Beside many records the first run rounds away what the second finds in the residual.
        for _ in range(2):
            found, reason, _, distance, slope, size, *_ = scipy.sparse.linalg.lsmr(
                operator, rest, atol=_SLOPE, btol=0.0, conlim=0, maxiter=_MOST_ITERATIONS
            )
            estimate += found
            if reason == _UNFINISHED:
                # A warning, not an error: the release is made, and its privacy does not depend on
                # how well it is post-processed.
                warnings.warn(
                    "the least-squares estimate is not exact: the search ended at a slope of "
                    f"{slope / (size * distance):.1e}, relatively; its answers are consistent, but "
                    "may have more error than was expected",
                    RuntimeWarning,
                    stacklevel=2,
                )
                break
            rest = rest - self.apply(found)
        return estimate

    @cached_property
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a column.

        With more than 2**26 cells it is the root of the sum of the parts' squares.
        """
        return checked_norm(math.sqrt(_largest_square(self.parts)) * (1.0 + 2 * UNIT_ROUNDOFF))

    @cached_property
    def diameter(self) -> float:
        """An upper bound of the largest distance of two columns; see `squared_diameter`."""
        return checked_diameter(math.sqrt(squared_diameter(self.parts)) * (1.0 + 2 * UNIT_ROUNDOFF))

    @property
    def errors_are_exact(self) -> bool:
        """No: the exact error would need the inverse of a matrix as large as the histogram."""
        return False

    def squared_error(self, workload: Workload) -> float:
        """Return an upper bound of the sum of the queries' variances at unit noise."""
        return math.fsum(part.squared_error(term) for term, part in self._pairs(workload))

    def query_variances(self, workload: Workload) -> FloatArray:
        """Return an upper bound of the variance of each answer at unit noise."""
        return np.concatenate([part.query_variances(term) for term, part in self._pairs(workload)])

    def check_supports(self, workload: Workload) -> None:
        """Raise if some part does not answer the product of the same index."""
        for term, part in self._pairs(workload):
            part.check_supports(term)

    def _pairs(self, workload: Workload) -> list[tuple[Workload, ProductStrategy]]:
        """Return the workload's products, each with the part that answers it."""
        terms = workload.terms()
        if len(terms) != len(self.parts):
            raise ShapeError(
                f"the strategy is a stack of {len(self.parts)} parts and the workload a union of "
                f"{len(terms)} products: make one part for each product, in their order"
            )
        return list(zip(map(Product, terms), self.parts, strict=True))

    def named_arrays(self) -> dict[str, FloatArray]:
        """Return ``part_0_factor_0``, ``part_0_factor_1`` and so on."""
        return {
            f"part_{index}_{name}": array
            for index, part in enumerate(self.parts)
            for name, array in part.named_arrays().items()
        }

    @classmethod
    def from_named_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Return the stack with these arrays: parts and factors numbered without gaps."""
        matches = [_NAME.fullmatch(name) for name in arrays]
        indices = {(int(match[1]), int(match[2])) for match in matches if match is not None}
        parts = 1 + max((part for part, _ in indices), default=-1)
        factors = 1 + max((factor for _, factor in indices), default=-1)
        # Counting is enough: as many different pairs as there could be leave no gap.
        if not len(arrays) == len(indices) == parts * factors:
            raise InvalidParameterError(
                "the arrays are not part_0_factor_0, part_0_factor_1 and so on, as many for each "
                "part"
            )
        return cls(
            [
                ProductStrategy([arrays[f"part_{part}_factor_{n}"] for n in range(factors)])
                for part in range(parts)
            ]
        )


def _largest_square(parts: Sequence[ProductStrategy]) -> float:
    """Return an upper bound of ``max_j sum_t |a_tj|^2``, which is rounded up.

    A column's square in one part is the product of those of the factors' columns. A sum of r
    squares is off by at most (r + 1) u, a product of k by k u, a sum over the parts by their
    number. Squares that underflow are far below 2**-500, and norms below 2**-100 are refused.
    """
    if parts[0].shape[1] > LARGEST_HISTOGRAM:
        # One number per cell would not fit in memory; the parts' own largest ones bound the sum.
        squares = math.fsum(part.sensitivity("add-remove") ** 2 for part in parts)
        return squares * (1.0 + 4 * UNIT_ROUNDOFF)
    # Summed cell by cell, because the parts may have their largest columns at different cells.
    total = np.zeros(parts[0].dimensions)
    for part in parts:
        product = np.ones(())
        for factor in part.factors:
            product = np.multiply.outer(product, np.sum(np.square(factor), axis=0))
        total += product
    return float(total.max()) * (1.0 + (2 * _roundings(parts) + 8) * UNIT_ROUNDOFF)


def squared_diameter(parts: Sequence[ProductStrategy]) -> float:
    """Return an upper bound of ``max_jk sum_t |a_tj - a_tk|^2``, rounded up; 0 if all are equal.

    Up to 8,192 cells every pair is looked at. Beyond, it is the sum of the parts' own, or four
    times the largest square of a norm if that is less.
    """
    # Parts with equal columns measure the public number of records: they cancel exactly, and
    # leaving them out keeps their size from being felt as rounding.
    varied = [part for part in parts if not part.columns_are_equal]
    if not varied:
        return 0.0
    if varied[0].shape[1] <= MOST_PAIRS:
        return _largest_squared_distance(varied)
    # Either is a bound: the parts' largest distances may belong to different pairs, and the
    # distance of two columns is at most the sum of their norms.
    alone = math.fsum(part.sensitivity("replace") ** 2 for part in varied)
    return min(alone, 4.0 * _largest_square(varied)) * (1.0 + 4 * UNIT_ROUNDOFF)


def _largest_squared_distance(parts: Sequence[ProductStrategy]) -> float:
    """Return an upper bound over all pairs, from the Gram matrices of the factors.

    ``|a_j - a_k|^2 = G_jj + G_kk - 2 G_jk`` with G a product of the factors' for each part, whose
    entries are off by no more than the roundings times the largest square of a norm.
    """
    # The factors' Gram matrices are small; that of a part is never written out as a whole.
    grams = [[factor.T @ factor for factor in part.factors] for part in parts]
    squares = [_products([np.diagonal(gram)[None, :] for gram in row])[0] for row in grams]
    dimensions, cells = parts[0].dimensions, parts[0].shape[1]
    largest = 0.0
    for start in range(0, cells, _TOGETHER):
        block = np.arange(start, min(start + _TOGETHER, cells))
        indices = np.unravel_index(block, dimensions)
        distances = np.zeros((len(block), cells))
        for row, square in zip(grams, squares, strict=True):
            inner = _products([gram[index] for gram, index in zip(row, indices, strict=True)])
            distances += square[block, None] + square - 2.0 * inner
        largest = max(largest, float(distances.max()))
    # Every part is off by a few roundings of its largest squared norm, and the errors add up.
    norms = math.fsum(float(square.max()) for square in squares)
    margin = 8 * (_roundings(parts) + 8) * UNIT_ROUNDOFF * norms
    return (largest + margin) * (1.0 + 4 * UNIT_ROUNDOFF)


def _products(rows: Sequence[FloatArray]) -> FloatArray:
    """Return the Kronecker products of rows: of the first rows, of the second rows, and so on."""
    product = np.ones((len(rows[0]), 1))
    for row in rows:
        product = (product[:, :, None] * row[:, None, :]).reshape(len(row), -1)
    return product


def _roundings(parts: Sequence[ProductStrategy]) -> int:
    """Return how often a sum over the parts of products of sums over the rows rounds, at most."""
    longest = max(sum(part.layout) + 2 * len(part.layout) for part in parts)
    return longest + len(parts)
