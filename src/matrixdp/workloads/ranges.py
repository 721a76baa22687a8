"""Queries on ordered cells, never written out: cells, total, prefixes, ranges; and their names."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer
from matrixdp.workloads.operator import LARGEST_EXPLICIT, Factor, FloatArray, Workload

__all__ = ["Identity", "Prefix", "Ranges", "Total", "query_names"]


@dataclass(frozen=True, repr=False)
class _Ordered(Factor):
    """Queries on a number of cells."""

    size: int

    def __post_init__(self) -> None:
        """Raise if the size is not a number of cells, or too large to optimise."""
        object.__setattr__(self, "size", positive_integer(self.size, "size"))
        if not self.size <= LARGEST_EXPLICIT:
            raise InvalidParameterError(
                f"size={self.size} is more than the {LARGEST_EXPLICIT} cells that one attribute "
                "may have: merge cells, or split the attribute into a Product"
            )

    @property
    def name(self) -> str:
        """The kind and the size."""
        return f"{type(self).__name__}({self.size})"

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells."""
        return (self.size,)


class Identity(_Ordered):
    """Every cell by itself."""

    @property
    def rows(self) -> int:
        """One for each cell."""
        return self.size

    def along(self, array: FloatArray) -> FloatArray:
        """Return the cells."""
        return array

    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return the answers."""
        return array

    def gram(self) -> FloatArray:
        """Return the identity."""
        return np.eye(self.size)

    @property
    def symmetric_eigenvalues(self) -> tuple[float, float]:
        """One, for the vector of ones and for contrasts."""
        return (1.0, 1.0)

    def known_optimum(self) -> tuple[FloatArray, float]:
        """Return the cells themselves; each has an error of 1."""
        return np.eye(self.size), float(self.size)


class Total(_Ordered):
    """All cells together: one query."""

    @property
    def rows(self) -> int:
        """One."""
        return 1

    def along(self, array: FloatArray) -> FloatArray:
        """Return the sum."""
        return np.asarray(np.sum(array, axis=0, keepdims=True))

    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return the answer for every cell."""
        return np.repeat(array, self.size, axis=0)

    def gram(self) -> FloatArray:
        """Return ones."""
        return np.ones((self.size, self.size))

    @property
    def is_total(self) -> bool:
        """Yes."""
        return True

    @property
    def symmetric_eigenvalues(self) -> tuple[float, float]:
        """The size for the vector of ones; no contrast changes the total."""
        return (float(self.size), 0.0)

    def known_optimum(self) -> tuple[FloatArray, float]:
        """Return the total itself, with an error of 1."""
        return np.ones((1, self.size)), 1.0


class Prefix(_Ordered):
    """The first cell, the first two, .., all: a cumulative distribution.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix
    >>> Prefix(4).apply([1, 0, 2, 5]).tolist()
    [1.0, 1.0, 3.0, 8.0]
    """

    @property
    def rows(self) -> int:
        """One for each cell."""
        return self.size

    def along(self, array: FloatArray) -> FloatArray:
        """Return the running sums."""
        return np.cumsum(array, axis=0)

    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return the running sums from the end."""
        return np.cumsum(array[::-1], axis=0)[::-1]

    def gram(self) -> FloatArray:
        """Return ``G_ij = n - max(i, j)``."""
        position = np.arange(self.size)
        return np.asarray(self.size - np.maximum.outer(position, position), dtype=np.float64)


@dataclass(frozen=True, repr=False, init=False)
class Ranges(_Ordered):
    """Every run of neighbouring cells, or every one of at most ``longest`` cells.

    The runs of one cell come first, then those of two, and so on.

    Parameters
    ----------
    size : int
        The number of cells.
    longest : int, optional
        The most cells in a run; by default all of them.

    Examples
    --------
    >>> from matrixdp.workloads import Ranges
    >>> Ranges(3).apply([1, 2, 4]).tolist()
    [1.0, 2.0, 4.0, 3.0, 6.0, 7.0]
    >>> Ranges(128, longest=16).rows
    1928
    """

    longest: int

    # Written by hand, because `longest` depends on `size` if it is left out.
    def __init__(self, size: int, longest: int | None = None) -> None:
        object.__setattr__(self, "size", size)
        self.__post_init__()
        # A width of the size is the same as none, so that equal workloads compare equal.
        width = self.size if longest is None else positive_integer(longest, "longest")
        if not width <= self.size:
            raise InvalidParameterError(
                f"longest={width} is more than the size={self.size}: leave it out for all ranges"
            )
        object.__setattr__(self, "longest", width)

    @property
    def name(self) -> str:
        """The kind, the size and the width where it is limited."""
        limit = "" if self.longest == self.size else f", longest={self.longest}"
        return f"Ranges({self.size}{limit})"

    @property
    def rows(self) -> int:
        """``sum over lengths of n - length + 1``."""
        return self.longest * self.size - self.longest * (self.longest - 1) // 2

    def along(self, array: FloatArray) -> FloatArray:
        """Return differences of the running sums."""
        # A zero in front, so that runs from the first cell are differences as well.
        sums = np.zeros((self.size + 1, *array.shape[1:]))
        np.cumsum(array, axis=0, out=sums[1:])
        runs = [sums[length:] - sums[:-length] for length in range(1, self.longest + 1)]
        return np.concatenate(runs)

    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return for every cell the sum over the runs that contain it."""
        # A run adds its number where it starts and takes it away where it ends; running sums over
        # these steps give the cells, without a pass over every run's cells.
        steps = np.zeros((self.size + 1, *array.shape[1:]))
        start = 0
        for length in range(1, self.longest + 1):
            part = array[start : start + self.size - length + 1]
            steps[: len(part)] += part
            steps[length:] -= part
            start += len(part)
        return np.cumsum(steps[:-1], axis=0)

    def variances(self, inverse: FloatArray) -> FloatArray:
        """Return each answer's variance if the cells are estimated by ``inverse`` times unit noise.

        It is the sum of the cells' covariances over a square on the diagonal, and four running
        sums give that at once: there are too many ranges to look at each of its cells.
        """
        covariance = inverse @ inverse.T
        sums = np.zeros((self.size + 1, self.size + 1))
        np.cumsum(np.cumsum(covariance, axis=0), axis=1, out=sums[1:, 1:])
        ends = np.diagonal(sums)
        return np.concatenate(
            [
                ends[length:]
                + ends[:-length]
                - np.diagonal(sums, length)
                - np.diagonal(sums, -length)
                for length in range(1, self.longest + 1)
            ]
        )

    def gram(self) -> FloatArray:
        """Return how many runs contain both cells i and j.

        A run from a contains both if ``a <= min(i, j)`` and it ends at ``max(i, j)`` or later: with
        h = max(i, j) and width w there are ``min(n, a + w) - h`` of them for each a from
        ``max(0, h - w + 1)`` on.
        """
        position = np.arange(self.size)
        low = np.minimum.outer(position, position)
        high = np.maximum.outer(position, position)
        first = np.maximum(0, high - self.longest + 1)
        # Runs that start up to here are limited by the width, later ones by the last cell.
        turn = self.size - self.longest
        before = np.maximum(np.minimum(low, turn) - first + 1, 0)
        # The sum of the starts from `first` on, an arithmetic series in integers.
        starts = before * (2 * first + before - 1) // 2
        # Later starts: the run may end anywhere from h to the last cell.
        beyond = np.maximum(low - np.maximum(first, turn + 1) + 1, 0)
        counts = starts + before * (self.longest - high) + beyond * (self.size - high)
        return np.asarray(counts, dtype=np.float64)


def query_names(workload: Workload) -> Iterator[str]:
    """Yield the name of each query, in the order of the answers.

    Cells are counted from 0. ``3`` is one cell, ``2..5`` the cells from 2 to 5, ``all`` their sum,
    and ``row 7`` a row of a matrix. Attributes are joined by ``x``, and the last one changes
    fastest. The parts of a union follow each other.

    Examples
    --------
    >>> from matrixdp.workloads import Identity, Prefix, Product, Total, Union
    >>> list(query_names(Union([Product([Prefix(2), Total(3)]), Product([Total(2), Identity(3)])])))
    ['0..0 x all', '0..1 x all', 'all x 0', 'all x 1', 'all x 2']
    """
    for term in workload.terms():
        for parts in itertools.product(*(list(_names(factor)) for factor in term)):
            yield " x ".join(parts)


def _names(factor: Factor) -> Iterator[str]:
    # The type itself and no subclass, which may ask other queries.
    kind = type(factor)
    if isinstance(factor, Identity) and kind is Identity:
        return map(str, range(factor.size))
    if isinstance(factor, Total) and kind is Total:
        return iter(["all"])
    if isinstance(factor, Prefix) and kind is Prefix:
        return (f"0..{last}" for last in range(factor.size))
    if isinstance(factor, Ranges) and kind is Ranges:
        return (
            f"{first}..{first + length - 1}"
            for length in range(1, factor.longest + 1)
            for first in range(factor.size - length + 1)
        )
    return (f"row {row}" for row in range(factor.rows))
