"""The two ends of every search: queries that are written out, and the best that was found."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = ["ExplicitQueries", "Found", "FoundMatrix", "FoundStrategies"]

# The error of a mixture of Gram matrices over its trace; it only enters bounds that are not used.
_MIXING_ERROR = 2.0**-50


class ExplicitQueries(NamedTuple):
    """What a search needs to know of queries, all of it written out.

    The Gram matrix, its error in Frobenius norm over its trace, and the queries themselves where
    they are needed and can be written out.
    """

    gram: FloatArray
    gram_error: float
    queries: Callable[[], FloatArray] | None
    roundings: int = 0  # of each entry of the queries as they are written out

    @classmethod
    def of_mixture(cls, gram: FloatArray) -> "ExplicitQueries":
        """Return a weighted sum of Gram matrices, whose queries nobody asks."""
        return cls(gram, _MIXING_ERROR, None)

    @classmethod
    def of(cls, workload: Workload) -> "ExplicitQueries":
        """Return the Gram matrix of a workload, and its queries if they are needed."""
        # Sums of cells have an exact Gram matrix, which is all that is needed. Where entries are
        # of any size their squares hide small ones, and the queries themselves are better.
        exact = all(factor.sums_cells for term in workload.terms() for factor in term)
        queries = workload.written_out if not exact and workload.writable else None
        # Every factor after the first multiplies an entry, and rounds it once.
        roundings = len(workload.dimensions) - 1
        return cls(workload.gram(), workload.gram_error, queries, roundings)


T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """What a search found, and a lower bound of the total squared error of any strategy.

    The bound is at unit sensitivity and noise.
    """

    best: T
    lower_bound: float


FoundMatrix = Found[FloatArray]
"""The best measurements on one attribute, as a factor of larger strategies."""

FoundStrategies = Found[tuple[Strategy, ...]]
"""Strategies to choose from."""
