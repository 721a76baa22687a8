r"""Answers and variances of linear queries from the components of sets of attributes.

The component of S is a table c_S over the cells of S that sums to 0 along each of them; in the
histogram it is spread evenly over the cells of all other attributes. So a product of factors W_i
answers

    sum over S of  (W_i along each i in S) c_S  x  prod_(i not in S) (W_i 1 / n_i),

and where c_S has the covariance ``v_S P_S``, P_S the projection on contrasts in S, its answers have
the variances

    sum over S of  v_S prod_(i in S) diag(W_i P_i W_i^T) prod_(i not in S) (W_i 1 / n_i)^2.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.strategies.attribute_sets import asked_attributes

__all__ = ["answers_of", "variances_of"]

Attributes = tuple[int, ...]


def answers_of(workload: Workload, components: Mapping[Attributes, FloatArray]) -> FloatArray:
    """Return the answer to each query, from a table for each set that the workload depends on."""
    answers = []
    for term in workload.terms():
        total = np.zeros([factor.rows for factor in term])
        for kept in _subsets(term):
            shape = [factor.cells if at in kept else 1 for at, factor in enumerate(term)]
            table = components[kept].reshape(shape)
            for place in kept:
                along = term[place].along(np.moveaxis(table, place, 0))
                table = np.moveaxis(along, 0, place)
            others = [at for at in range(len(term)) if at not in kept]
            total += _multiplied(table, term, others, _means)
        answers.append(total.ravel())
    return np.concatenate(answers)


def variances_of(workload: Workload, variances: Mapping[Attributes, float]) -> FloatArray:
    """Return the variance of each answer, from v_S for each set that the workload depends on."""
    found = []
    for term in workload.terms():
        total = np.zeros([factor.rows for factor in term])
        for kept in _subsets(term):
            table = np.full([1] * len(term), variances[kept])
            table = _multiplied(table, term, kept, _contrast_variances)
            others = [at for at in range(len(term)) if at not in kept]
            total += _multiplied(table, term, others, lambda factor: np.square(_means(factor)))
        found.append(total.ravel())
    return np.concatenate(found)


def _subsets(term: Sequence[Factor]) -> Iterator[Attributes]:
    """Yield the sets of attributes that a product depends on."""
    asked = asked_attributes(term)
    return (kept for many in range(len(asked) + 1) for kept in combinations(asked, many))


def _multiplied(
    table: FloatArray,
    term: Sequence[Factor],
    places: Sequence[int],
    numbers: Callable[[Factor], FloatArray],
) -> FloatArray:
    """Return the table times one vector of numbers along each of some attributes."""
    for place in places:
        if not term[place].is_total:  # whose number is 1
            spread = [-1 if at == place else 1 for at in range(len(term))]
            table = table * numbers(term[place]).reshape(spread)
    return table


def _means(factor: Factor) -> FloatArray:
    """Return ``W 1 / n``; one number where it is the same for every query."""
    if factor.symmetric_eigenvalues is not None:
        return np.array([1.0 / factor.cells])  # every cell by itself: totals are never asked for
    return factor.along(np.full(factor.cells, 1.0 / factor.cells))


def _contrast_variances(factor: Factor) -> FloatArray:
    """Return the diagonal of ``W P W^T``; one number where it is the same for every query."""
    if factor.symmetric_eigenvalues is not None:
        return np.array([1.0 - 1.0 / factor.cells])
    return factor.variances(np.eye(factor.cells) - 1.0 / factor.cells)
