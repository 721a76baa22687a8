"""What strategies that do not look at the workload would have cost."""

import math
from collections.abc import Callable

import numpy as np
from scipy import linalg

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.plain import direct_reach_squared, identity_error
from matrixdp.workloads.strategy import Strategy

__all__ = ["compared_errors", "haar_wavelet", "hierarchy"]


def hierarchy(size: int) -> FloatArray:
    """Return the binary tree over cells: the sum of every node, from the whole to single cells.

    Hay, Rastogi, Miklau and Suciu (2010). A node of odd size has the larger half on the left.
    """
    rows, nodes = [], [(0, size)]
    while nodes:
        start, stop = nodes.pop(0)
        row = np.zeros(size)
        row[start:stop] = 1.0
        rows.append(row)
        if stop - start > 1:
            middle = (start + stop + 1) // 2
            nodes += [(start, middle), (middle, stop)]
    return np.array(rows)


def haar_wavelet(size: int) -> FloatArray:
    """Return the total, and for every node of the binary tree its left half less its right half.

    Xiao, Wang and Gehrke (2010), unweighted.
    """
    sums = hierarchy(size)
    widths = np.sum(sums, axis=1)
    rows = [sums[0]]
    for row in sums[widths > 1]:
        places = np.flatnonzero(row)
        left = places[: (len(places) + 1) // 2]
        difference = -row
        difference[left] = 1.0
        rows.append(difference)
    return np.array(rows)


def compared_errors(workload: Workload, neighbouring: Neighbouring) -> dict[str, float]:
    """Return the root mean squared error per query at unit noise of well-known strategies.

    "identity" measures every cell, "direct" every query by itself, "hierarchical" and "wavelet" the
    trees above on each attribute.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix
    >>> found = compared_errors(Prefix(128), "add-remove")
    >>> {name: round(error, 3) for name, error in found.items()}
    {'identity': 8.031, 'direct': 11.314, 'hierarchical': 2.81, 'wavelet': 2.794}
    """
    return {
        "identity": math.sqrt(identity_error(workload, neighbouring) / workload.rows),
        "direct": math.sqrt(direct_reach_squared(workload, neighbouring)),
        "hierarchical": _tree_error(workload, neighbouring, hierarchy),
        "wavelet": _tree_error(workload, neighbouring, haar_wavelet),
    }


def _tree_error(
    workload: Workload, neighbouring: Neighbouring, tree: Callable[[int], FloatArray]
) -> float:
    """Return the error of a tree on each attribute: ``s^2 sum over terms prod tr(G_i Q_i^-1)``."""
    factors = [tree(size) for size in workload.dimensions]
    inverses = [linalg.cho_factor(factor.T @ factor) for factor in factors]
    total = sum(
        math.prod(
            float(np.trace(linalg.cho_solve(inverse, factor.gram())))
            for inverse, factor in zip(inverses, term, strict=True)
        )
        for term in workload.terms()
    )
    return Strategy(factors).sensitivity(neighbouring) * math.sqrt(total / workload.rows)
