r"""Sets of attributes, and what each costs: a workload as a sum over sets of contrasts.

With P_i the projection on contrasts of attribute i, a histogram is the sum of one component for
each set S of attributes: contrasts in S, means in the others. Components are orthogonal. If the
component of S is measured by itself, as orthonormal contrasts of the table of S with weight w_S,
the total squared error of a workload with the Gram matrices G_i in its terms is

    sum over S of u_S / w_S^2,
    u_S = sum over terms of  prod_(i in S) tr(P_i G_i)  prod_(i not in S) 1^T G_i 1 / n_i^2.

Sets are written as integers: bit i says whether attribute i is a member.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.operator import Factor, FloatArray, Workload

__all__ = [
    "MOST_LISTED",
    "MOST_NUMBERED",
    "SetCosts",
    "asked_attributes",
    "covering_sets",
    "listed_sets",
    "members",
    "numbered",
    "set_costs",
]

MOST_NUMBERED = 62
"""The most attributes whose sets are written as 64-bit integers."""

MOST_LISTED = 2**22
"""The most sets that are listed, counted once for each term: all subsets of 22 attributes."""

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
    return tuple(index for index in range(numbered_set.bit_length()) if numbered_set >> index & 1)


def numbered(attributes: Iterable[int]) -> int:
    """Return the number of a set of attributes.

    Examples
    --------
    >>> bin(numbered((1, 3)))
    '0b1010'
    """
    return sum(1 << index for index in attributes)


def covering_sets(sets: Iterable[int]) -> dict[int, int]:
    """Return for each set one that contains it and that no other contains.

    Examples
    --------
    >>> covering_sets([0b000, 0b001, 0b011, 0b100])
    {3: 3, 1: 3, 0: 3, 4: 4}
    """
    given = set(sets)
    found: dict[int, int] = {}
    for candidate in sorted(given, key=lambda each: (-each.bit_count(), each)):
        if candidate in found:
            continue
        # Either all subsets of the candidate are looked up, or all sets are compared with it.
        few = 1 << candidate.bit_count() <= len(given)
        inner = _subsets(candidate) if few else (s for s in given if s & candidate == s)
        for subset in inner:
            if subset in given:
                found.setdefault(subset, candidate)
    return found


def _subsets(numbered_set: int) -> Iterator[int]:
    """Yield all subsets, the set itself first."""
    subset = numbered_set
    while True:
        yield subset
        if subset == 0:
            return
        subset = (subset - 1) & numbered_set


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
    if not (count <= MOST_LISTED and len(workload.dimensions) <= MOST_NUMBERED):
        raise InvalidParameterError(
            f"the workload has {len(workload.dimensions)} attributes and {count} sets of them in "
            f"its parts: at most {MOST_NUMBERED} and {MOST_LISTED} can be told apart; keep fewer "
            "attributes in each table"
        )
    found = [_costs_of_term(term) for term in terms]
    sets, indices = np.unique(np.concatenate([part.sets for part in found]), return_inverse=True)
    # A set that many tables hold is paid once, and its error counts in each of them.
    costs = np.zeros(len(sets))
    np.add.at(costs, indices.ravel(), np.concatenate([part.costs for part in found]))
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
