"""What every search returns: the best it found, and a proven lower bound of any error."""

from typing import Generic, NamedTuple, TypeVar

from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = ["Found", "FoundMatrix", "FoundStrategies"]

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
