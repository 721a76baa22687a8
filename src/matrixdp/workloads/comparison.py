"""The errors of well-known strategies that do not depend on the workload."""

import math
from collections.abc import Callable

import numpy as np
import scipy

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.solve.explicit import check_contrasts
from matrixdp.workloads.strategies.plain import (
    direct_sensitivity_squared,
    identity_error,
    sensitivity_squared,
)

__all__ = ["compared_errors", "haar_gram", "hierarchy_gram"]


def hierarchy_gram(size: int) -> FloatArray:
    """Return ``A^T A`` of the binary tree over cells: the sum of every node, down to single cells.

    Hay, Rastogi, Miklau and Suciu (2010). A node of odd size has the larger half on the left. Entry
    (i, j) counts the nodes that contain both cells.
    """
    gram = np.zeros((size, size))
    for start, _, stop in _nodes(size):
        gram[start:stop, start:stop] += 1.0
    return gram


def haar_gram(size: int) -> FloatArray:
    """Return ``A^T A`` of the total, and of every node's left half less its right half.

    Xiao, Wang and Gehrke (2010), unweighted.
    """
    gram = np.ones((size, size))
    for start, middle, stop in _nodes(size):
        if stop - start > 1:
            gram[start:middle, start:middle] += 1.0
            gram[middle:stop, middle:stop] += 1.0
            gram[start:middle, middle:stop] -= 1.0
            gram[middle:stop, start:middle] -= 1.0
    return gram


def _nodes(size: int) -> list[tuple[int, int, int]]:
    """Return where each node of the tree starts, is divided and stops."""
    # A list of what is waiting instead of recursion: trees of 8,192 cells are no problem then.
    nodes, waiting = [], [(0, size)]
    while waiting:
        start, stop = waiting.pop()
        middle = (start + stop + 1) // 2
        nodes.append((start, middle, stop))
        if stop - start > 1:
            waiting += [(start, middle), (middle, stop)]
    return nodes


def compared_errors(workload: Workload, neighbouring: Neighbouring) -> dict[str, float]:
    """Return the root mean squared error per query at unit noise of well-known strategies.

    "identity" measures every cell, "direct" every query by itself, "hierarchical" and "wavelet" the
    trees of `hierarchy_gram` and `haar_gram` on each attribute.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix
    >>> found = compared_errors(Prefix(128), "add-remove")
    >>> {name: round(error, 3) for name, error in found.items()}
    {'identity': 8.031, 'direct': 11.314, 'hierarchical': 2.81, 'wavelet': 2.794}
    """
    # Errors of 0 would be no comparison: such a workload needs no noise at all.
    if neighbouring == "replace":
        check_contrasts(workload)
    return {
        "identity": math.sqrt(identity_error(workload, neighbouring) / workload.rows),
        "direct": math.sqrt(direct_sensitivity_squared(workload, neighbouring)),
        "hierarchical": _tree_error(workload, neighbouring, hierarchy_gram),
        "wavelet": _tree_error(workload, neighbouring, haar_gram),
    }


def _tree_error(
    workload: Workload, neighbouring: Neighbouring, tree: Callable[[int], FloatArray]
) -> float:
    """Return the error of a tree on each attribute: ``s^2 sum over terms prod tr(G_i Q_i^-1)``."""
    grams = [tree(size) for size in workload.dimensions]
    # Both trees contain every cell or every difference, so that their Gram matrices are regular.
    inverses = [_inverse(gram) for gram in grams]
    total = sum(
        math.prod(
            float(np.einsum("ij,ij->", inverse, factor.gram()))
            for inverse, factor in zip(inverses, term, strict=True)
        )
        for term in workload.terms()
    )
    return math.sqrt(sensitivity_squared(grams, neighbouring) * total / workload.rows)


def _inverse(gram: FloatArray) -> FloatArray:
    """Return the inverse of a positive definite matrix."""
    factor = scipy.linalg.cho_factor(gram, check_finite=False)
    inverse: FloatArray = scipy.linalg.cho_solve(factor, np.eye(len(gram)), check_finite=False)
    return inverse
