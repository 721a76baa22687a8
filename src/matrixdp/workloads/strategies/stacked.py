"""Several products of measurements, one under the other.

McKenna, Miklau, Hay and Machanavajjhala (2018) call such a strategy a union of products.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, MOST_ANSWERS, FloatArray
from matrixdp.workloads.strategies.product import (
    MOST_PAIRS,
    Strategy,
    checked_diameter,
    checked_norm,
)

__all__ = ["AnyStrategy", "StackedStrategy", "scaled", "squared_diameter"]

_TOGETHER = 256
# Of the size of the residual times that of A: what is left of the slope where the search ends.
_SLOPE = 1e-10
_MOST_ITERATIONS = 20_000
_UNFINISHED = 7  # what the search says if it runs out of steps


@dataclass(frozen=True, eq=False)
class StackedStrategy:
    """Linear measurements that are several products, one under the other.

    Parts may have different scales, which their factors hold.

    Parameters
    ----------
    parts : sequence of Strategy
        Products without weights, on the same cells; at most 2**28 measurements in all.

    Notes
    -----
    A workload is answered by a stack with as many parts as the workload has products: what each
    part alone says of its product bounds the error from above. Least squares on all measurements,
    which have equal and independent noise, is never worse for any query (Gauss and Markov).

    References
    ----------
    McKenna, Miklau, Hay and Machanavajjhala, *Optimizing error of high-dimensional statistical
    queries under differential privacy*, PVLDB 11 (2018).

    Examples
    --------
    >>> from matrixdp.workloads import StackedStrategy, Strategy
    >>> rows = Strategy([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0, 1.0]]])
    >>> total = Strategy([[[2.0, 2.0]], [[1.0, 1.0, 1.0]]])
    >>> stack = StackedStrategy([rows, total])
    >>> stack.shape, round(stack.sensitivity("add-remove") ** 2, 12)
    ((3, 6), 5.0)
    """

    parts: tuple[Strategy, ...]

    def __init__(self, parts: Sequence[Strategy]) -> None:
        members = tuple(parts)
        if not members:
            raise InvalidParameterError("parts=() is empty: pass at least one Strategy")
        for member in members:
            if not isinstance(member, Strategy):
                raise InvalidParameterError(
                    f"parts holds a {type(member).__name__}: pass products, each a Strategy"
                )
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
                f"parts make {measurements} measurements, more than the {MOST_ANSWERS} that are "
                "held in memory: measure less"
            )
        object.__setattr__(self, "parts", members)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return self.parts[0].dimensions

    @property
    def shape(self) -> tuple[int, int]:
        """Measurements and cells."""
        return (sum(part.shape[0] for part in self.parts), self.parts[0].shape[1])

    @property
    def layout(self) -> tuple[int]:
        """The number of measurements, which lie along no attributes."""
        return (self.shape[0],)

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x``, part after part, to ordinary float accuracy."""
        return np.concatenate([part.apply(values).ravel() for part in self.parts])

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""
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
        """An upper bound of the norm of a column; no measurement is taken for exact."""
        return self._largest_norm

    def written_out(self) -> FloatArray:
        """Return ``A`` as a matrix; the products round its entries."""
        return np.concatenate([part.written_out() for part in self.parts])

    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate of the histogram, as a vector of cells.

        Of all histograms that are closest to the measurements it is the smallest, as with ``A^+``.
        It is found by the method of Fong and Saunders (2011), through the operators, until the
        slope ``||A^T r||`` of the residual r is 1e-10 of ``||A|| ||r||``: what is then left is far
        below the noise, which is of the size of r. A second run on the residual makes up for what
        the first one rounds beside many records.

        Warns
        -----
        RuntimeWarning
            If 20,000 steps did not do, which takes measurements of very different size. The
            histogram is then the closest that was found.
        """
        operator = LinearOperator(
            self.shape,
            matvec=self.apply,
            rmatvec=lambda values: self.apply_transpose(values).ravel(),
            dtype=np.float64,
        )
        estimate, rest = np.zeros(self.shape[1]), measurements.ravel()
        for _ in range(2):
            found, reason, _, distance, slope, size, *_ = lsmr(
                operator, rest, atol=_SLOPE, btol=0.0, conlim=0, maxiter=_MOST_ITERATIONS
            )
            estimate += found
            if reason == _UNFINISHED:
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

    def sensitivity(self, neighbouring: Neighbouring) -> float:
        """Return an upper bound on how far neighbouring histograms are apart under ``A``.

        For adding or removing a record it is the largest norm of a column, over all cells; with
        more than 2**26 of them the root of the sum of the parts' squares. For replacing one it is
        `squared_diameter`'s root. All are rounded up.

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
        return checked_norm(math.sqrt(_largest_square(self.parts)) * (1.0 + 2 * UNIT_ROUNDOFF))

    @cached_property
    def _diameter(self) -> float:
        return checked_diameter(math.sqrt(squared_diameter(self.parts)) * (1.0 + 2 * UNIT_ROUNDOFF))


AnyStrategy = Strategy | StackedStrategy
"""What is measured: one product, or several."""


def scaled(strategy: Strategy, scale: float) -> Strategy:
    """Return a product with all entries multiplied, to float accuracy: the smallest factor is."""
    factors = list(strategy.factors)
    place = min(range(len(factors)), key=lambda place: factors[place].size)
    factors[place] = factors[place] * scale
    return Strategy(factors)


def _largest_square(parts: Sequence[Strategy]) -> float:
    """Return an upper bound of ``max_j sum_t |a_tj|^2``, which is rounded up.

    A column's square in one part is the product of those of the factors' columns. A sum of r
    squares is off by at most (r + 1) u, a product of k by k u, a sum over the parts by their
    number. What underflows is far below 2**-500, and norms below 2**-100 are refused.
    """
    if parts[0].shape[1] > LARGEST_HISTOGRAM:
        squares = math.fsum(part.sensitivity("add-remove") ** 2 for part in parts)
        return squares * (1.0 + 4 * UNIT_ROUNDOFF)
    total = np.zeros(parts[0].dimensions)
    for part in parts:
        product = np.ones(())
        for factor in part.factors:
            product = np.multiply.outer(product, np.sum(np.square(factor), axis=0))
        total += product
    return float(total.max()) * (1.0 + (2 * _roundings(parts) + 8) * UNIT_ROUNDOFF)


def squared_diameter(parts: Sequence[Strategy]) -> float:
    """Return an upper bound of ``max_jk sum_t |a_tj - a_tk|^2``, rounded up; 0 if all are equal.

    Up to 8,192 cells every pair is looked at; beyond, it is the sum of the parts' own, or four
    times the largest square of a norm if that is less.
    """
    varied = [part for part in parts if not part.columns_are_equal]
    if not varied:
        return 0.0
    if varied[0].shape[1] <= MOST_PAIRS:
        return _largest_squared_distance(varied)
    alone = math.fsum(part.sensitivity("replace") ** 2 for part in varied)
    return min(alone, 4.0 * _largest_square(varied)) * (1.0 + 4 * UNIT_ROUNDOFF)


def _largest_squared_distance(parts: Sequence[Strategy]) -> float:
    """Return an upper bound over all pairs, from the Gram matrices of the factors.

    ``|a_j - a_k|^2 = G_jj + G_kk - 2 G_jk`` with G a product of the factors' for each part, whose
    entries are off by no more than the roundings times the largest square of a norm.
    """
    grams = [[factor.T @ factor for factor in part.factors] for part in parts]
    squares = [_products([np.diagonal(gram)[None, :] for gram in row])[0] for row in grams]
    dimensions, cells = parts[0].dimensions, parts[0].shape[1]
    largest = 0.0
    for start in range(0, cells, _TOGETHER):
        block = np.arange(start, min(start + _TOGETHER, cells))
        places = np.unravel_index(block, dimensions)
        distances = np.zeros((len(block), cells))
        for row, square in zip(grams, squares, strict=True):
            inner = _products([gram[place] for gram, place in zip(row, places, strict=True)])
            distances += square[block, None] + square - 2.0 * inner
        largest = max(largest, float(distances.max()))
    norms = math.fsum(float(square.max()) for square in squares)
    margin = 8 * (_roundings(parts) + 8) * UNIT_ROUNDOFF * norms
    return (largest + margin) * (1.0 + 4 * UNIT_ROUNDOFF)


def _products(rows: Sequence[FloatArray]) -> FloatArray:
    """Return the Kronecker products of rows: of the first rows, of the second rows, and so on."""
    product = np.ones((len(rows[0]), 1))
    for row in rows:
        product = (product[:, :, None] * row[:, None, :]).reshape(len(row), -1)
    return product


def _roundings(parts: Sequence[Strategy]) -> int:
    """Return how often a sum over the parts of products of sums over the rows rounds, at most."""
    longest = max(sum(part.layout) + 2 * len(part.layout) for part in parts)
    return longest + len(parts)
