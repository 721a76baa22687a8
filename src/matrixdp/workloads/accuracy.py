"""The error of measuring a workload through a product of factors, before anything is measured.

The measurements are ``A = diag(w) (F_1 x .. x F_k)`` with unit noise on each. What enters here are
the pseudo-inverses of the factors and of the weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.workloads.operator import Factor, FloatArray, Workload, along_axes

__all__ = ["check_factors_support", "is_negligible", "query_variances", "squared_error"]

# What a query may lose, relative to the largest answer it could have given. Rounding stays far
# below it even for badly scaled strategies; a direction that is not measured loses everything.
_NEGLIGIBLE_LOSS = 1e-9
# Random vectors to try; a query that is not answered escapes one with probability 0.
_TRIALS = 2


@dataclass(frozen=True, eq=False, repr=False)
class _Flat(Factor):
    """A workload on several attributes, seen as one attribute of as many cells."""

    whole: Workload

    @property
    def name(self) -> str:
        return repr(self.whole)

    @property
    def dimensions(self) -> tuple[int, ...]:
        return (self.whole.cells,)

    @property
    def rows(self) -> int:
        return self.whole.rows

    @property
    def sums_cells(self) -> bool:
        # Some factor may be a matrix, and errors through the answers are right in any case.
        return False

    def along(self, array: FloatArray) -> FloatArray:
        # A workload takes one histogram at a time.
        columns = array.reshape(self.cells, -1)
        answers = [self.whole.apply(columns[:, index]) for index in range(columns.shape[1])]
        return np.stack(answers, axis=1).reshape(self.rows, *array.shape[1:])

    def transpose_along(self, array: FloatArray) -> FloatArray:
        columns = array.reshape(self.rows, -1)
        cells = [self.whole.apply_transpose(columns[:, index]) for index in range(columns.shape[1])]
        return np.stack(cells, axis=1).reshape(self.cells, *array.shape[1:])

    def magnitudes(self) -> FloatArray:
        return self.whole.magnitudes()

    def gram(self) -> FloatArray:
        return self.whole.gram()


def squared_error(
    workload: Workload, inverses: Sequence[FloatArray], inverse_weights: FloatArray | None = None
) -> float:
    """Return ``||W A^+||_F^2``: the sum of the queries' variances at unit noise.

    It is ``prod_i tr(G_i F_i^+ F_i^+T)`` for each term; weights enter as their inverse squares.
    """
    total = 0.0
    for term in _terms(workload, inverses):
        shares = [factor.squared_norms(part) for factor, part in zip(term, inverses, strict=True)]
        if inverse_weights is None:
            total += math.prod(float(np.sum(share)) for share in shares)
            continue
        # Contracting one axis after the other never holds more than the weights themselves.
        array = np.square(inverse_weights)
        for share in shares:
            array = np.tensordot(share, array, 1)
        total += float(array)
    return total


def query_variances(
    workload: Workload, inverses: Sequence[FloatArray], inverse_weights: FloatArray | None = None
) -> FloatArray:
    """Return the variance of each answer at unit noise on each measurement.

    Without weights it is a product of one variance for each factor.
    """
    terms = _terms(workload, inverses)
    if inverse_weights is None:
        return np.concatenate([_product_of_variances(term, inverses) for term in terms])
    squares = np.square(inverse_weights)
    return np.concatenate(
        [
            along_axes(
                [
                    partial(factor.squared_response, inverse)
                    for factor, inverse in zip(term, inverses, strict=True)
                ],
                squares,
            ).ravel()
            for term in terms
        ]
    )


def _product_of_variances(term: Sequence[Factor], inverses: Sequence[FloatArray]) -> FloatArray:
    product = np.ones(1)
    for factor, inverse in zip(term, inverses, strict=True):
        product = np.multiply.outer(product, factor.variances(inverse)).ravel()
    return product


def check_factors_support(
    workload: Workload, factors: Sequence[FloatArray], inverses: Sequence[FloatArray]
) -> None:
    """Raise if some factor's queries are not combinations of its measurements.

    ``W F^+ F = W`` is tried on two fixed random vectors, and every query is held to its own size.
    """
    for term in _terms(workload, inverses):
        for factor, matrix, inverse in zip(term, factors, inverses, strict=True):
            # The seed is fixed, so that the same strategy is always accepted or always refused.
            tried = np.random.default_rng(0).standard_normal((factor.cells, _TRIALS))
            lost = factor.along(tried - inverse @ (matrix @ tried))
            if not is_negligible(lost, factor.magnitudes()[:, None], tried):
                raise InvalidParameterError(
                    f"the strategy does not answer {factor.name}: some queries are not "
                    "combinations of its measurements; measure more, or use optimal_strategy"
                )


def is_negligible(lost: FloatArray, magnitudes: FloatArray, tried: FloatArray) -> bool:
    """Return whether each query lost next to nothing of the largest answer it could have given."""
    largest = float(np.max(np.abs(tried)))
    return bool(np.all(np.abs(lost) <= _NEGLIGIBLE_LOSS * largest * magnitudes))


def _terms(workload: Workload, inverses: Sequence[FloatArray]) -> tuple[tuple[Factor, ...], ...]:
    """Return the terms in the layout of the factors: by attribute, or all cells in one."""
    dimensions = tuple(len(inverse) for inverse in inverses)
    if dimensions == workload.dimensions:
        return workload.terms()
    if dimensions == (workload.cells,):
        # Strategies for unions that were solved as a whole do not know the attributes.
        return ((_Flat(workload),),)
    raise ShapeError(
        f"the strategy is for cells laid out as {dimensions} and the workload for "
        f"{workload.dimensions}: make the strategy for this workload"
    )
