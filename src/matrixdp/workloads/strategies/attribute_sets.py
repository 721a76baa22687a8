r"""Sets of attributes, and what each costs: a workload as a sum over sets of contrasts.

With P_i the projection on contrasts of attribute i, a histogram is the sum of one component for
each set S of attributes: contrasts in S, means in the others. Components are orthogonal. If the
component of S is measured by itself, as orthonormal contrasts of the table of S with weight w_S,
the total squared error of a workload with the Gram matrices G_i in its terms is

    sum over S of u_S / w_S^2,
    u_S = sum over terms of  prod_(i in S) tr(P_i G_i)  prod_(i not in S) 1^T G_i 1 / n_i^2.

Sets are written as whole numbers: bit i says whether attribute i is a member.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.operator import Factor, FloatArray, Workload

__all__ = [
    "MOST_NUMBERED",
    "SetCosts",
    "asked_attributes",
    "largest_sets",
    "listed_sets",
    "members",
    "numbered",
    "set_costs",
]

MOST_NUMBERED = 62
"""The most attributes whose sets are written as 64-bit integers."""

# All subsets of every term are listed: a term of 22 attributes that it does not sum over.
_MOST_LISTED = 2**22

IntArray = NDArray[np.int64]


class SetCosts(NamedTuple):
    """Sets of attributes, ascending as numbers, and what each adds to the squared error."""

    sets: IntArray
    costs: FloatArray  # u


def members(numbered_set: int) -> tuple[int, ...]:
    """Return the attributes of a set.

    Examples
    --------
    >>> members(0b1010)
    (1, 3)
    """
    return tuple(place for place in range(numbered_set.bit_length()) if numbered_set >> place & 1)


def numbered(attributes: Iterable[int]) -> int:
    """Return the number of a set of attributes.

    Examples
    --------
    >>> bin(numbered((1, 3)))
    '0b1010'
    """
    return sum(1 << place for place in attributes)


def largest_sets(sets: Iterable[int]) -> list[int]:
    """Return the sets that no other contains.

    Examples
    --------
    >>> largest_sets([0b000, 0b001, 0b011, 0b100])
    [3, 4]
    """
    largest: list[int] = []
    for candidate in sorted(sets, key=int.bit_count, reverse=True):
        if not any(candidate & found == candidate for found in largest):
            largest.append(candidate)
    return sorted(largest)


def listed_sets(workload: Workload) -> int:
    """Return how many sets `set_costs` would list, with repetitions."""
    return sum(1 << len(asked_attributes(term)) for term in workload.terms())


def set_costs(workload: Workload) -> SetCosts:
    """Return u_S for every set S that some query of a workload depends on.

    Raises
    ------
    InvalidParameterError
        If the terms have more than 2**22 sets, or there are more than 62 attributes.
    """
    terms = workload.terms()
    count = sum(1 << len(asked_attributes(term)) for term in terms)
    if not (count <= _MOST_LISTED and len(workload.dimensions) <= MOST_NUMBERED):
        raise InvalidParameterError(
            f"the workload has {len(workload.dimensions)} attributes and {count} sets of them in "
            f"its parts: at most {MOST_NUMBERED} and {_MOST_LISTED} can be told apart; keep fewer "
            "attributes in each table"
        )
    found = [_costs_of_term(term) for term in terms]
    sets, places = np.unique(np.concatenate([part.sets for part in found]), return_inverse=True)
    # A set that many tables hold is paid once, and its error counts in each of them.
    costs = np.bincount(places.ravel(), np.concatenate([part.costs for part in found]), len(sets))
    return SetCosts(sets, costs)


def asked_attributes(term: Sequence[Factor]) -> list[int]:
    """Return the attributes whose cells a product tells apart."""
    return [at for at, factor in enumerate(term) if not factor.is_total and factor.cells > 1]


def _costs_of_term(term: Sequence[Factor]) -> SetCosts:
    asked = asked_attributes(term)
    means, contrasts = zip(*map(_squares, term), strict=True)
    others = math.prod(mean for at, mean in enumerate(means) if at not in asked)
    sets, costs = np.zeros(1, dtype=np.int64), np.array([others])
    for at in asked:
        # Each attribute doubles the list: without it, and with it.
        sets = np.concatenate([sets, sets | (1 << at)])
        costs = np.concatenate([costs * means[at], costs * contrasts[at]])
    return SetCosts(sets, costs)


def _squares(factor: Factor) -> tuple[float, float]:
    """Return ``1^T G 1 / n^2`` and ``tr(P G)``."""
    mean, whole = factor.gram_traces
    return mean / factor.cells, max(whole - mean, 0.0)
