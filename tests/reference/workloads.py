"""Dense oracles for workloads and strategies: every query written out, every optimum re-derived."""

import itertools
from fractions import Fraction

import numpy as np
from flint import acb_mat, arb, arb_mat, ctx
from numpy.typing import NDArray
from scipy.linalg import helmert

from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    ProductStrategy,
    Ranges,
    ResidualStrategy,
    StackedStrategy,
    Strategy,
    Total,
    Workload,
)

FloatArray = NDArray[np.float64]


def dense_factor(factor: Factor) -> FloatArray:
    """Return a factor's matrix from what its name means, not from its code."""
    size = factor.cells
    match factor:
        case Dense():
            return np.array(factor.matrix)
        case Identity():
            return np.eye(size)
        case Total():
            return np.ones((1, size))
        case Prefix():
            return np.tril(np.ones((size, size)))
        case Ranges():
            runs = [
                (start, start + length)
                for length in range(1, factor.longest + 1)
                for start in range(size - length + 1)
            ]
            cells = np.arange(size)
            return np.array([(cells >= low) & (cells < high) for low, high in runs], dtype=float)
    raise NotImplementedError(type(factor).__name__)


def dense(workload: Workload) -> FloatArray:
    """Return the whole matrix of a workload."""
    blocks = []
    for term in workload.terms():
        block: FloatArray = np.ones((1, 1))
        for factor in term:
            block = np.asarray(np.kron(block, dense_factor(factor)), dtype=np.float64)
        blocks.append(block)
    return np.concatenate(blocks)


def dense_strategy(strategy: Strategy) -> FloatArray:
    """Return the whole matrix of a strategy."""
    if isinstance(strategy, StackedStrategy):
        return np.concatenate([dense_strategy(part) for part in strategy.parts])
    if isinstance(strategy, ResidualStrategy):
        blocks = [
            weight * _orthonormal_contrasts(strategy.dimensions, group)
            for group, weight in zip(strategy.sets, strategy.weights, strict=True)
        ]
        return np.concatenate(blocks)
    assert isinstance(strategy, ProductStrategy)
    matrix: FloatArray = np.ones((1, 1))
    for factor in strategy.factors:
        matrix = np.asarray(np.kron(matrix, factor), dtype=np.float64)
    return matrix if strategy.weights is None else strategy.weights.reshape(-1, 1) * matrix


def _orthonormal_contrasts(sizes: tuple[int, ...], group: tuple[int, ...]) -> FloatArray:
    """Return Helmert's matrix for the attributes of a set, with totals over the others."""
    matrix: FloatArray = np.ones((1, 1))
    for index, size in enumerate(sizes):
        own = helmert(size) if index in group else np.ones((1, size))
        matrix = np.asarray(np.kron(matrix, own), dtype=np.float64)
    return matrix


def exact_columns(strategy: Strategy) -> list[list[Fraction]]:
    """Return the columns of a strategy without any rounding."""
    if isinstance(strategy, StackedStrategy):
        parts = [exact_columns(part) for part in strategy.parts]
        return [[entry for part in column for entry in part] for column in zip(*parts, strict=True)]
    if isinstance(strategy, ResidualStrategy):
        return _exact_residual_columns(strategy)
    assert isinstance(strategy, ProductStrategy)
    rows = [[Fraction(1)]]
    for factor in strategy.factors:
        rows = [
            [left * Fraction(right) for left in row for right in other]
            for row in rows
            for other in factor.tolist()
        ]
    if strategy.weights is not None:
        flat = strategy.weights.ravel().tolist()
        rows = [[Fraction(w) * x for x in row] for w, row in zip(flat, rows, strict=True)]
    return [list(column) for column in zip(*rows, strict=True)]


def _exact_residual_columns(strategy: ResidualStrategy) -> list[list[Fraction]]:
    """Return whole contrasts times the float weight of their row, as the measurements have it."""
    rows = []
    for group, weight in zip(strategy.sets, strategy.weights.tolist(), strict=True):
        whole, scales = [[1]], np.ones(1)
        for index, size in enumerate(strategy.dimensions):
            own = [[1] * size]
            if index in group:
                own = [[1] * j + [-j] + [0] * (size - j - 1) for j in range(1, size)]
                norms = [1.0 / np.sqrt(float(j * (j + 1))) for j in range(1, size)]
                scales = np.multiply.outer(scales, norms).ravel()
            whole = [[a * b for a in row for b in other] for row in whole for other in own]
        floats = (weight * scales).tolist()
        rows += [[Fraction(w) * x for x in row] for w, row in zip(floats, whole, strict=True)]
    return [list(column) for column in zip(*rows, strict=True)]


def norm_squared(column: list[Fraction]) -> Fraction:
    """Return the exact square of a column's norm."""
    return sum((entry * entry for entry in column), Fraction(0))


def diameter_squared(columns: list[list[Fraction]]) -> Fraction:
    """Return the exact square of the largest distance of two columns."""
    return max(
        norm_squared([x - y for x, y in zip(one, other, strict=True)])
        for one, other in itertools.combinations(columns, 2)
    )


def hierarchy(size: int) -> FloatArray:
    """Return the sums over the nodes of a binary tree, the larger half on the left."""
    rows, nodes = [], [(0, size)]
    while nodes:
        start, stop = nodes.pop(0)
        rows.append((np.arange(size) >= start) & (np.arange(size) < stop))
        if stop - start > 1:
            middle = (start + stop + 1) // 2
            nodes += [(start, middle), (middle, stop)]
    return np.array(rows, dtype=np.float64)


def haar_wavelet(size: int) -> FloatArray:
    """Return the total, and the left half less the right half of every node."""
    rows = [np.ones(size)]
    for row in hierarchy(size):
        indices = np.flatnonzero(row)
        if len(indices) > 1:
            difference = -row
            difference[indices[: (len(indices) + 1) // 2]] = 1.0
            rows.append(difference)
    return np.array(rows)


def column_norm(matrix: FloatArray) -> float:
    return float(np.linalg.norm(matrix, axis=0).max())


def diameter(matrix: FloatArray) -> float:
    pairs = itertools.combinations(range(matrix.shape[1]), 2)
    return max(float(np.linalg.norm(matrix[:, j] - matrix[:, k])) for j, k in pairs)


def total_error(workload: FloatArray, strategy: FloatArray, sensitivity: float) -> float:
    """Return ``s^2 ||W A^+||_F^2``, by a singular value decomposition."""
    return float(sensitivity**2 * np.linalg.norm(workload @ np.linalg.pinv(strategy)) ** 2)


def dual_value(gram: FloatArray, weights: FloatArray) -> arb:
    """Return ``(tr (D^1/2 G D^1/2)^1/2)^2 / sum(d)`` in ball arithmetic: a bound for any d >= 0.

    D G has the same eigenvalues as D^1/2 G D^1/2 and needs no roots.
    """
    saved, ctx.prec = ctx.prec, 400
    try:
        product = arb_mat(np.diag(weights).tolist()) * arb_mat(gram.tolist())
        values = acb_mat(product).eig(nonstop=True)
        roots = sum((value.real.sqrt() for value in values), start=arb(0))
        return roots**2 / sum((arb(float(weight)) for weight in weights), start=arb(0))
    finally:
        ctx.prec = saved


def root(ball: arb) -> arb:
    """Return the root of a number that is not negative, of which a ball is known."""
    if not ball.contains(0):
        return ball.sqrt()
    half = ball.abs_upper().sqrt() / 2
    return arb(half.mid(), half.abs_upper())


def nuclear_norm(matrix: FloatArray) -> arb:
    """Return the sum of the singular values in ball arithmetic, from eigenvalues of ``M^T M``."""
    saved, ctx.prec = ctx.prec, 600
    try:
        exact = arb_mat((matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T).tolist())
        values = acb_mat(exact.transpose() * exact).eig(nonstop=True)
        return sum((root(value.real) for value in values), start=arb(0))
    finally:
        ctx.prec = saved


def replacement_dual_value(queries: FloatArray, pairs: FloatArray) -> arb:
    """Return ``(tr (L^1/2 G L^1/2)^1/2)^2 / sum(y)`` in ball arithmetic, L the Laplacian of y.

    L G has the same eigenvalues; in exact arithmetic one of them is 0, because L 1 is.
    """
    saved, ctx.prec = ctx.prec, 600
    try:
        weights = arb_mat(pairs.tolist())
        cells = len(pairs)
        laplacian = arb_mat(cells, cells)
        for row in range(cells):
            for column in range(cells):
                laplacian[row, column] = -weights[row, column]
            laplacian[row, row] = sum((weights[row, k] for k in range(cells)), start=arb(0))
        exact = arb_mat(queries.tolist())
        values = acb_mat(laplacian * exact.transpose() * exact).eig(nonstop=True)
        roots = sum((root(value.real) for value in values), start=arb(0))
        total = sum((arb(float(weight)) for weight in np.triu(pairs, 1).ravel()), start=arb(0))
        return roots**2 / total
    finally:
        ctx.prec = saved
