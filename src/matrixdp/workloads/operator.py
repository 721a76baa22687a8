"""Workloads: linear counting queries on a histogram, as an operator and not as a matrix.

A histogram counts records in cells that are laid out along one or more attributes. A workload W
asks for fixed linear combinations of the counts. It is a union of *terms*, each term a Kronecker
product of one `Factor` per attribute, and everything here is computed through the factors.
"""

import abc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import LARGEST_EXACT_INTEGER, finite_array
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = [
    "LARGEST_EXPLICIT",
    "LARGEST_HISTOGRAM",
    "LARGEST_WRITTEN",
    "MOST_ANSWERS",
    "Factor",
    "FloatArray",
    "Workload",
    "along_axes",
]

FloatArray = NDArray[np.float64]

LARGEST_EXPLICIT = 8192
"""The most cells whose Gram matrix is ever written out: half a gigabyte."""

LARGEST_HISTOGRAM = 2**26
"""The most cells of a histogram in memory."""

LARGEST_WRITTEN = 2**26
"""The most entries of a workload that is ever written out: half a gigabyte."""

MOST_ANSWERS = 2**28
"""The most answers in memory: two gigabytes."""

_MOST_ATTRIBUTES = 64
"""The most axes of an array in numpy."""

# The most answers computed together where all of them would not fit in memory: 32 megabytes.
_ENTRIES_TOGETHER = 2**22


class Workload(abc.ABC):
    """Linear queries on a histogram.

    Integer counts give exact answers as long as these stay below 2**53.
    """

    @property
    @abc.abstractmethod
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""

    @abc.abstractmethod
    def terms(self) -> tuple[tuple["Factor", ...], ...]:
        """Return the products that the workload is a union of, one factor per attribute each."""

    @property
    def cells(self) -> int:
        """The number of cells of the histogram."""
        return math.prod(self.dimensions)

    @property
    def rows(self) -> int:
        """The number of queries."""
        return sum(math.prod(factor.rows for factor in term) for term in self.terms())

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and cells."""
        return (self.rows, self.cells)

    def apply(self, values: ArrayLike) -> FloatArray:
        """Return ``W x``, the answers on a histogram, term by term.

        Parameters
        ----------
        values : array_like, shape (cells,) or dimensions
            Finite numbers.
        """
        array = self.checked_cells(values)
        # Axes that sum cells up come first, so that the others work on smaller arrays.
        answers = [
            along_axes([factor.along for factor in term], array, _shrinking_first(term)).ravel()
            for term in self.terms()
        ]
        return np.concatenate(answers)

    @property
    def asks_tables(self) -> bool:
        """Whether every term is a table of counts: cells of some attributes, sums over others."""
        return all(f.symmetric_eigenvalues is not None for term in self.terms() for f in term)

    def check_answerable(self) -> None:
        """Raise if there are more cells or more answers than fit in memory.

        Tables of counts are answered without the histogram, so that its size does not matter.

        Raises
        ------
        InvalidParameterError
            If there are more than 2**28 queries, or 2**26 cells, except for tables.
        """
        if not self.asks_tables:
            self.check_histogram()
        if not self.rows <= MOST_ANSWERS:
            raise InvalidParameterError(
                f"the workload has {self.rows} queries, more than the {MOST_ANSWERS} answers that "
                "fit in memory: ask fewer, for instance Prefix instead of Ranges, or ranges "
                "with a longest; the estimated histogram answers the others"
            )

    def check_histogram(self) -> None:
        """Raise if there are more than 2**26 cells, which fit in memory, or 64 attributes."""
        if not len(self.dimensions) <= _MOST_ATTRIBUTES:
            raise InvalidParameterError(
                f"the workload has {len(self.dimensions)} attributes, more than the "
                f"{_MOST_ATTRIBUTES} axes of an array: leave out those of one cell, or merge some"
            )
        if not self.cells <= LARGEST_HISTOGRAM:
            raise InvalidParameterError(
                f"the workload has {self.cells} cells, more than the {LARGEST_HISTOGRAM} of a "
                "histogram in memory: leave out attributes, or merge their cells; tables of counts "
                "can be released from records instead"
            )

    def apply_transpose(self, answers: ArrayLike) -> FloatArray:
        """Return ``W^T y``, one number for each cell, from one number for each query."""
        array = finite_array(answers, "answers")
        if array.shape != (self.rows,):
            raise ShapeError(f"answers has shape {array.shape}: pass {self.rows} numbers")
        # The answers of the terms follow each other; W^T sums what each term makes of its own.
        ends = np.cumsum([0, *(math.prod(f.rows for f in term) for term in self.terms())])
        total = np.zeros(self.dimensions)
        for term, (start, stop) in zip(self.terms(), pairwise(ends.tolist()), strict=True):
            part = array[start:stop].reshape([factor.rows for factor in term])
            total += along_axes([factor.transpose_along for factor in term], part)
        return total.ravel()

    def magnitudes(self) -> FloatArray:
        """Return the sum of the absolute entries of each query: how large its answer can be.

        Raises
        ------
        InvalidParameterError
            If there are more than 2**26 cells or 2**28 queries.
        """
        self.check_histogram()
        self.check_answerable()
        ones = np.ones(self.dimensions)
        return np.concatenate(
            [
                along_axes(
                    [factor.magnitudes_along for factor in term], ones, _shrinking_first(term)
                ).ravel()
                for term in self.terms()
            ]
        )

    def gram(self) -> FloatArray:
        """Return ``W^T W``, written out, or raise if there are more than 8,192 cells."""
        if not self.cells <= LARGEST_EXPLICIT:
            raise InvalidParameterError(
                f"the workload has {self.cells} cells, and W.T @ W is written out for at most "
                f"{LARGEST_EXPLICIT}: merge cells, or make it a Product of smaller attributes"
            )
        # That of a product is the product of the factors', and that of a union the sum.
        total = np.zeros((self.cells, self.cells))
        for term in self.terms():
            product: FloatArray = np.ones((1, 1))
            for factor in term:
                product = np.asarray(np.kron(product, factor.gram()), dtype=np.float64)
            total += product
        return total

    @property
    def writable(self) -> bool:
        """Whether the matrix of the queries is small enough to be written out: 2**26 entries."""
        return self.rows * self.cells <= LARGEST_WRITTEN

    def written_out(self) -> FloatArray:
        """Return W itself, a row for each query.

        Raises
        ------
        InvalidParameterError
            If it has more than 2**26 entries.
        """
        if not self.writable:
            raise InvalidParameterError(
                f"the workload has {self.rows} x {self.cells} entries, and is written out for at "
                f"most {LARGEST_WRITTEN}: use its operators"
            )
        blocks = []
        for term in self.terms():
            block: FloatArray = np.ones((1, 1))
            for factor in term:
                block = np.asarray(np.kron(block, factor.matrix_of_queries()), dtype=np.float64)
            blocks.append(block)
        return np.concatenate(blocks)

    @property
    def gram_error(self) -> float:
        """A bound on the rounding error of the Gram matrix in Frobenius norm, over its trace.

        The factors' errors compound, and every product and sum of entries rounds once. Where all
        numbers are whole and below 2**53 nothing is lost.
        """
        terms = self.terms()
        # Relative errors e compound to prod(1 + e) - 1, and the worst term bounds the union.
        worst = max(math.prod(1.0 + factor.gram_error for factor in term) for term in terms) - 1.0
        # The trace bounds every entry and every partial sum; up to 2**53 integers are exact.
        if worst == 0.0 and self.frobenius_squared() < LARGEST_EXACT_INTEGER:
            return 0.0
        return worst + (len(terms) + len(self.dimensions) + 2) * UNIT_ROUNDOFF

    def column_norms_squared(self) -> FloatArray:
        """Return the squared norm of every column of W: how far one record moves the answers.

        Raises
        ------
        InvalidParameterError
            If there are more than 2**26 cells.
        """
        self.check_histogram()
        # The diagonal of a Kronecker product is that of the diagonals: no Gram matrix is needed.
        total = np.zeros(self.dimensions)
        for term in self.terms():
            product = np.ones(())
            for factor in term:
                product = np.multiply.outer(product, np.diagonal(factor.gram()))
            total += product
        return total.ravel()

    def frobenius_squared(self) -> float:
        """Return the sum of all squared entries of W."""
        return float(sum(math.prod(f.gram_traces[1] for f in term) for term in self.terms()))

    def checked_cells(self, values: ArrayLike, name: str = "values") -> FloatArray:
        """Return finite numbers, one for each cell, laid out along the attributes."""
        array = finite_array(values, name)
        if array.shape not in ((self.cells,), self.dimensions):
            raise ShapeError(
                f"{name} has shape {array.shape}: the workload has {self.cells} cells, "
                f"laid out as {self.dimensions}"
            )
        return array.reshape(self.dimensions)

    def __repr__(self) -> str:
        """Name the terms."""
        return " + ".join(" x ".join(factor.name for factor in term) for term in self.terms())


class Factor(Workload):
    """A workload on one attribute; products consist of these."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called, with its sizes."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """The number of queries."""

    @abc.abstractmethod
    def along(self, array: FloatArray) -> FloatArray:
        """Return ``W X`` for an array whose first axis is the cells."""

    @abc.abstractmethod
    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return ``W^T Y`` for an array whose first axis is the queries."""

    @abc.abstractmethod
    def gram(self) -> FloatArray:
        """Return ``W^T W``."""

    @property
    def sums_cells(self) -> bool:
        """Whether every query is a sum of cells: its entries are 0 and 1."""
        return True

    @property
    def is_total(self) -> bool:
        """Whether it asks for the number of records and nothing else."""
        return False

    @property
    def symmetric_eigenvalues(self) -> tuple[float, float] | None:
        """The eigenvalues of the Gram matrix if it treats all cells alike, or None.

        The first belongs to the vector of ones, the second to every contrast of the cells.
        """
        return None

    @property
    def gram_traces(self) -> tuple[float, float]:
        """``1^T G 1 / n`` and ``tr(G)``: what the mean of the cells adds to it, and everything."""
        if self.symmetric_eigenvalues is None:
            gram = self.gram()
            return float(np.sum(gram)) / len(gram), float(np.trace(gram))
        # Without the Gram matrix, which for many cells would not fit in memory.
        on_ones, on_contrasts = self.symmetric_eigenvalues
        return on_ones, on_ones + (self.cells - 1) * on_contrasts

    def known_optimum(self) -> tuple[FloatArray, float] | None:
        """Return the best strategy and its squared error where no search is needed, or None.

        The error is that for adding or removing a record, at sensitivity 1.
        """
        return None

    def magnitudes_along(self, array: FloatArray) -> FloatArray:
        """Return ``|W| X``, which is ``W X`` where the entries are 0 and 1."""
        return self.along(array)

    def matrix_of_queries(self) -> FloatArray:
        """Return the factor's matrix: its answers on every single cell."""
        return self.along(np.eye(self.cells))

    @property
    def gram_error(self) -> float:
        """The error of the Gram matrix over its trace: none for small integers."""
        return 0.0

    def variances(self, inverse: FloatArray) -> FloatArray:
        """Return each answer's variance if the cells are estimated by ``inverse`` times unit noise.

        Parameters
        ----------
        inverse : ndarray, shape (cells, measurements)
        """
        return self.squared_response(inverse, np.ones(inverse.shape[1]))

    def squared_response(self, inverse: FloatArray, array: FloatArray) -> FloatArray:
        """Return ``(W F^+)^2 X``, squared entry by entry, a few columns of ``F^+`` at a time."""
        total = np.zeros((self.rows, *array.shape[1:]))
        for block in self._blocks(inverse.shape[1]):
            # A copy in memory order, because running sums over strided columns are slow.
            columns = np.ascontiguousarray(inverse[:, block])
            total += np.tensordot(np.square(self.along(columns)), array[block], 1)
        return total

    def squared_norms(self, columns: FloatArray) -> FloatArray:
        """Return ``||W x||^2`` for each column x."""
        if self.sums_cells:
            # The Gram matrix is exact here, and much smaller than the answers.
            return np.asarray(np.einsum("ij,ij->j", columns, self.gram() @ columns))
        # With entries of any size the squares in a Gram matrix would hide small ones.
        norms = [
            np.sum(np.square(self.along(columns[:, block])), axis=0)
            for block in self._blocks(columns.shape[1])
        ]
        return np.concatenate(norms)

    def _blocks(self, columns: int) -> Iterator[slice]:
        """Return runs of columns whose answers fit in memory together."""
        step = max(1, _ENTRIES_TOGETHER // self.rows)
        return (slice(start, start + step) for start in range(0, columns, step))

    def terms(self) -> tuple[tuple["Factor", ...], ...]:
        """Return the factor itself."""
        return ((self,),)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.dimensions[0]


def along_axes(
    maps: Sequence[Callable[[FloatArray], FloatArray]],
    array: FloatArray,
    order: Iterable[int] | None = None,
) -> FloatArray:
    """Return a Kronecker product applied to an array: each map along its own axis, in any order."""
    # Maps along different axes commute, so the caller may choose the cheapest order.
    for axis in range(len(maps)) if order is None else order:
        array = np.moveaxis(maps[axis](np.moveaxis(array, axis, 0)), 0, axis)
    return array


def _shrinking_first(term: Sequence["Factor"]) -> list[int]:
    """Return the axes by rows / cells, the factors of the size: so arrays stay the smallest."""
    return sorted(range(len(term)), key=lambda axis: term[axis].rows / term[axis].cells)
