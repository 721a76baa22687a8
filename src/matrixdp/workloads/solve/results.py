"""What the searches return: strategies, and a proven lower bound of every strategy's error."""

from typing import NamedTuple

from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = ["AttributeOptimum", "Candidates"]


class AttributeOptimum(NamedTuple):
    """The best measurements on one attribute, as a factor of larger strategies.

    The bound is on the total squared error of every strategy at unit sensitivity and noise.
    """

    matrix: FloatArray
    lower_bound: float


class Candidates(NamedTuple):
    """Strategies to choose from, and a lower bound of the total squared error of any strategy."""

    strategies: tuple[Strategy, ...]
    lower_bound: float
