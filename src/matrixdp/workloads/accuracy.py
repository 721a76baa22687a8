"""The error of a strategy on a workload, before anything is measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.workloads.composed import Product
from matrixdp.workloads.dense import Dense
from matrixdp.workloads.operator import Factor, FloatArray, Workload, along_axes
from matrixdp.workloads.ranges import Ranges
from matrixdp.workloads.strategies.product import Strategy
from matrixdp.workloads.strategies.stacked import AnyStrategy, StackedStrategy

__all__ = ["check_answers", "query_variances", "squared_error"]

_ANSWERED = 1e-9
_TRIALS = 2
_TOGETHER = 2**22


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

    def along(self, array: FloatArray) -> FloatArray:
        columns = array.reshape(self.cells, -1)
        answers = [self.whole.apply(columns[:, place]) for place in range(columns.shape[1])]
        return np.stack(answers, axis=1).reshape(self.rows, *array.shape[1:])

    def transpose_along(self, array: FloatArray) -> FloatArray:
        columns = array.reshape(self.rows, -1)
        cells = [self.whole.apply_transpose(columns[:, place]) for place in range(columns.shape[1])]
        return np.stack(cells, axis=1).reshape(self.cells, *array.shape[1:])

    def magnitudes(self) -> FloatArray:
        return self.whole.magnitudes()

    def gram(self) -> FloatArray:
        return self.whole.gram()


def squared_error(workload: Workload, strategy: AnyStrategy) -> float:
    """Return ``||W A^+||_F^2``: the sum of the queries' variances at unit noise.

    For a product it is ``prod_i tr(G_i F_i^+ F_i^+T)``; weights enter as their inverse squares. For
    a stack it is an upper bound: the sum of what each part alone says of its product.
    """
    if isinstance(strategy, StackedStrategy):
        return math.fsum(squared_error(*pair) for pair in _pairs(workload, strategy))
    total = 0.0
    for term in _terms(workload, strategy):
        shares = [_squared_norms(*pair) for pair in zip(term, strategy.inverses, strict=True)]
        if strategy.weights is None:
            total += math.prod(float(np.sum(share)) for share in shares)
            continue
        array = np.square(strategy.inverse_weights)
        for share in shares:
            array = np.tensordot(share, array, 1)
        total += float(array)
    return total


def query_variances(workload: Workload, strategy: AnyStrategy) -> FloatArray:
    """Return the variance of each answer at unit noise on each measurement.

    For a product it is the product of what the factors say, unless there are weights. For a stack
    it is an upper bound: the variance from the part of the query's own product alone.
    """
    if isinstance(strategy, StackedStrategy):
        return np.concatenate([query_variances(*pair) for pair in _pairs(workload, strategy)])
    terms = _terms(workload, strategy)
    if strategy.weights is None and len(terms[0]) == len(workload.dimensions):
        return np.concatenate([_product_of_variances(term, strategy.inverses) for term in terms])
    precisions = np.square(strategy.inverse_weights)
    return np.concatenate(
        [
            along_axes(
                [
                    partial(_squared_response, factor, inverse)
                    for factor, inverse in zip(term, strategy.inverses, strict=True)
                ],
                precisions,
            ).ravel()
            for term in terms
        ]
    )


def _product_of_variances(term: Sequence[Factor], inverses: Sequence[FloatArray]) -> FloatArray:
    product = np.ones(1)
    for factor, inverse in zip(term, inverses, strict=True):
        if isinstance(factor, Ranges):
            own = factor.variances(inverse @ inverse.T)
        else:
            own = _squared_response(factor, inverse, np.ones(inverse.shape[1]))
        product = np.multiply.outer(product, own).ravel()
    return product


def check_answers(workload: Workload, strategy: AnyStrategy) -> None:
    """Refuse a strategy from which the workload cannot be answered: ``W A^+ A`` must be W.

    That is tried, factor by factor, on two fixed random vectors; with weights, which may leave
    measurements out, on the whole. Every query is held to its own size. Each part of a stack must
    answer the product in its place.
    """
    if isinstance(strategy, StackedStrategy):
        for product, part in _pairs(workload, strategy):
            check_answers(product, part)
        return
    if strategy.weights is not None:
        _check_weighted_answers(workload, strategy)
    for term in _terms(workload, strategy):
        for factor, matrix, inverse in zip(term, strategy.factors, strategy.inverses, strict=True):
            tried = np.random.default_rng(0).standard_normal((factor.cells, _TRIALS))
            lost = factor.along(tried - inverse @ (matrix @ tried))
            if not _negligible(lost, factor.magnitudes()[:, None], tried):
                raise InvalidParameterError(
                    f"the strategy does not answer {factor.name}: some queries are not "
                    "combinations of its measurements; measure more, or use optimal_strategy"
                )


def _pairs(workload: Workload, stack: StackedStrategy) -> list[tuple[Workload, Strategy]]:
    """Return the workload's products, each with the part of the stack that answers it."""
    terms = workload.terms()
    if len(terms) != len(stack.parts):
        raise ShapeError(
            f"the strategy is a stack of {len(stack.parts)} parts and the workload a union of "
            f"{len(terms)} products: make one part for each product, in their order"
        )
    return list(zip(map(Product, terms), stack.parts, strict=True))


def _check_weighted_answers(workload: Workload, strategy: Strategy) -> None:
    tried = np.random.default_rng(0).standard_normal(strategy.dimensions)
    estimate = strategy.reconstruct(strategy.apply(tried)).reshape(strategy.dimensions)
    lost = workload.apply((tried - estimate).ravel())
    if not _negligible(lost, workload.magnitudes(), tried):
        raise InvalidParameterError(
            "the weights leave out measurements that the workload needs: give them weight, or use "
            "optimal_strategy"
        )


def _negligible(lost: FloatArray, magnitudes: FloatArray, tried: FloatArray) -> bool:
    """Tell whether every query lost next to nothing of what it could have answered at most."""
    return bool(np.all(np.abs(lost) <= _ANSWERED * float(np.max(np.abs(tried))) * magnitudes))


def _squared_norms(factor: Factor, columns: FloatArray) -> FloatArray:
    """Return ``||W x||^2`` for each column x.

    Through the Gram matrix, which is exact for the structured factors; where entries may be of any
    size, through the answers, because squares would hide the small beside the large.
    """
    if not isinstance(factor, Dense | _Flat):
        return np.asarray(np.einsum("ij,ij->j", columns, factor.gram() @ columns))
    step = max(1, _TOGETHER // factor.rows)
    blocks = [
        np.sum(np.square(factor.along(columns[:, start : start + step])), axis=0)
        for start in range(0, columns.shape[1], step)
    ]
    return np.concatenate(blocks)


def _terms(workload: Workload, strategy: Strategy) -> tuple[tuple[Factor, ...], ...]:
    """Return the terms in the strategy's layout: by attribute, or all cells in one."""
    if strategy.dimensions == workload.dimensions:
        return workload.terms()
    if strategy.dimensions == (workload.cells,):
        return ((_Flat(workload),),)
    raise ShapeError(
        f"the strategy is for cells laid out as {strategy.dimensions} and the workload for "
        f"{workload.dimensions}: make the strategy for this workload"
    )


def _squared_response(factor: Factor, inverse: FloatArray, array: FloatArray) -> FloatArray:
    """Return ``(W F^+)^2 X``, squared entry by entry, without ever holding all of ``W F^+``."""
    step = max(1, _TOGETHER // factor.rows)
    total = np.zeros((factor.rows, *array.shape[1:]))
    for start in range(0, inverse.shape[1], step):
        block = np.ascontiguousarray(inverse[:, start : start + step])
        total += np.tensordot(np.square(factor.along(block)), array[start : start + step], 1)
    return total
