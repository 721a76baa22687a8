r"""Components of sets of attributes: their contrasts, and answers of linear queries from them.

The component of S is a table c_S over the cells of S that sums to 0 along each of them; in the
histogram it is spread evenly over the cells of all other attributes. So a product of factors W_i
answers

    sum over S of  (W_i along each i in S) c_S  x  prod_(i not in S) (W_i 1 / n_i),

and where c_S has the covariance ``v_S P_S``, P_S the projection on contrasts in S, its answers have
the variances

    sum over S of  v_S prod_(i in S) diag(W_i P_i W_i^T) prod_(i not in S) (W_i 1 / n_i)^2.

Contrasts of the cells of an attribute are measured in integers, by the rows of Helmert's matrix.
Row j = 1 .. n - 1 is the sum of the first j cells less j times the next one. The rows are
orthogonal to each other and to the total, and row j has the squared norm ``j (j + 1)``. So the
contrasts of integer counts are integers, and the rows divided by their norms are an orthonormal
basis H of all contrasts: ``H^T H = I - J / n``, J of ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.strategies.attribute_sets import asked_attributes

__all__ = ["answers_of", "contrast_scales", "spread_contrasts", "variances_of", "whole_contrasts"]

Attributes = tuple[int, ...]


def answers_of(workload: Workload, components: Mapping[Attributes, FloatArray]) -> FloatArray:
    """Return the answer to each query, from a table for each set that the workload depends on."""
    answers = []
    for term in workload.terms():
        total = np.zeros([factor.rows for factor in term])
        for kept in _subsets(term):
            shape = [factor.cells if at in kept else 1 for at, factor in enumerate(term)]
            table = components[kept].reshape(shape)
            for index in kept:
                along = term[index].along(np.moveaxis(table, index, 0))
                table = np.moveaxis(along, 0, index)
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
    indices: Sequence[int],
    numbers: Callable[[Factor], FloatArray],
) -> FloatArray:
    """Return the table times one vector of numbers along each of some attributes."""
    for index in indices:
        if not term[index].is_total:  # whose number is 1
            spread = [-1 if at == index else 1 for at in range(len(term))]
            table = table * numbers(term[index]).reshape(spread)
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


def whole_contrasts(table: NDArray[Any], axes: Iterable[int]) -> NDArray[Any]:
    """Return Helmert's rows applied along some axes; n cells become n - 1 contrasts.

    Integers stay integers. No number on the way is larger than the sum of the absolute values in
    the table times the product of the ``n - 1``.

    Examples
    --------
    >>> whole_contrasts(np.array([5, 3, 1]), [0]).tolist()
    [2, 6]
    """
    for axis in axes:
        cells = np.moveaxis(table, axis, 0)
        # 1, 2, .. along the first axis, in the type of the table so that integers stay integers.
        counted = np.arange(1, len(cells), dtype=table.dtype).reshape(-1, *[1] * (cells.ndim - 1))
        contrasts = np.cumsum(cells[:-1], axis=0) - counted * cells[1:]
        table = np.moveaxis(contrasts, 0, axis)
    return table


def contrast_scales(cells: int) -> FloatArray:
    """Return ``(j (j + 1))^(-1/2)`` for j = 1 .. n - 1, each off by at most 2 units of 2**-53."""
    rows = np.arange(1.0, cells)
    return np.asarray(1.0 / np.sqrt(rows * (rows + 1.0)))


def spread_contrasts(contrasts: FloatArray, axes: Iterable[int]) -> FloatArray:
    """Return ``H^T`` applied along some axes: n - 1 normalised contrasts become n cells.

    Examples
    --------
    >>> spread_contrasts(np.array([2.0, 6.0]) * contrast_scales(3), [0]).round(12).tolist()
    [2.0, 0.0, -2.0]
    """
    for axis in axes:
        rows = np.moveaxis(contrasts, axis, 0)
        ones = [1] * (rows.ndim - 1)
        scaled = rows * contrast_scales(len(rows) + 1).reshape(-1, *ones)
        cells = np.zeros((len(rows) + 1, *rows.shape[1:]))
        # Cell i is in the sums of the rows j > i, and is the one that row i subtracts i times.
        cells[:-1] = np.cumsum(scaled[::-1], axis=0)[::-1]
        cells[1:] -= np.arange(1.0, len(rows) + 1.0).reshape(-1, *ones) * scaled
        contrasts = np.moveaxis(cells, 0, axis)
    return contrasts
