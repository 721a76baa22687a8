"""A number between two bounds."""

from typing import NamedTuple

__all__ = ["Interval"]


class Interval(NamedTuple):
    """Two bounds that a number is proven to lie between."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        """How far apart they are."""
        return self.upper - self.lower

    def narrowed(self, other: "Interval") -> "Interval":
        """Return what this and other bounds of the same number have in common."""
        return Interval(max(self.lower, other.lower), min(self.upper, other.upper))
