"""Sums of integers that are exact in any order, and the parts that sums over records are made of.

A part is what some of the records contribute to an answer. Parts are added up: in any order, in any
tree and however the records were divided, the sum is the same, because integers are not rounded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Integers", "Part", "RunningSum", "merged"]

IntArray = NDArray[np.int64]

_LOW_BITS = 32
_LOW_MASK = (1 << _LOW_BITS) - 1
# Sums up to this are kept in one integer of 64 bits.
_NARROW = 2**62
_LARGEST_BLOCK = 2**53


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True, eq=False)
class Integers:
    """An array of integers that add up exactly: in 64 bits, or in pairs of 64 bits.

    Attributes
    ----------
    low : ndarray of int64
        The numbers; the lowest 32 bits of them where there is a high part.
    high : ndarray of int64 or None
        What is left of them, in units of 2**32.
    largest : int
        No number is larger in absolute value. It follows from how much was added up, not from the
        numbers.

    Examples
    --------
    >>> import numpy as np
    >>> half = Integers(np.array([2**62, -(2**62)]), None, 2**62)
    >>> [number // 2**62 for number in (half + half + half).exact().tolist()]
    [3, -3]
    """

    low: IntArray = field(repr=False)
    high: IntArray | None = field(repr=False)
    largest: int = field(repr=False)

    def __add__(self, other: "Integers") -> "Integers":
        """Return the sum, which is exact."""
        largest = self.largest + other.largest
        if self.high is None and other.high is None and largest <= _NARROW:
            return Integers(self.low + other.low, None, largest)
        low, high = (a + b for a, b in zip(self.pair(), other.pair(), strict=True))
        return Integers(low & _LOW_MASK, high + (low >> _LOW_BITS), largest)

    def pair(self) -> tuple[IntArray, IntArray]:
        """Return the lowest 32 bits of the numbers, from 0 up, and the rest of them."""
        if self.high is not None:
            return self.low, self.high
        return self.low & _LOW_MASK, self.low >> _LOW_BITS

    def exact(self) -> NDArray[Any]:
        """Return the numbers as an array of Python integers."""
        low, high = self.pair()
        return np.asarray(high.astype(object) * 2**_LOW_BITS + low.astype(object))

    def rounded(self, bits: int) -> IntArray:
        """Return the numbers over ``2**bits``, at most 2**32, to the nearest integer, halves up."""
        low, high = self.pair()
        # `low` is below 2**32 and at least 0, so that nothing is carried into `high`.
        return (high << (_LOW_BITS - bits)) + ((low + (1 << bits >> 1)) >> bits)


class RunningSum:
    """A sum of arrays of integers, each of the records of one block.

    Parameters
    ----------
    shape : tuple of int
        Of the arrays.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._narrow = np.zeros(shape, dtype=np.int64)
        self._block = np.empty(shape, dtype=np.int64)
        self._largest = 0
        self._wide: Integers | None = None

    def add(self, block: NDArray[Any], largest: int = _LARGEST_BLOCK) -> None:
        """Add an array of integers, no larger than ``largest`` in absolute value."""
        if self._largest + largest > _NARROW:
            self._wide = self.total()
            self._narrow, self._largest = np.zeros_like(self._narrow), 0
        # Integers in a float64 array are exact up to 2**53, and a copy is quick.
        np.copyto(self._block, block, casting="unsafe")
        self._narrow += self._block
        self._largest += largest

    def total(self) -> Integers:
        """Return the sum so far; it may share memory with this object, so add nothing after it."""
        narrow = Integers(self._narrow, None, self._largest)
        return narrow if self._wide is None else self._wide + narrow


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """What some of the records contribute to an answer; private.

    Attributes
    ----------
    records : int
        How many records there are.
    sums : tuple of Integers
        What is added up of them.

    Notes
    -----
    Parts of one query form a commutative monoid under `+`: the sums of integers do, entry by entry.
    """

    records: int
    sums: tuple[Integers, ...]

    def __add__(self, other: "Part") -> "Part":
        """Return the part of the records of both."""
        pairs = zip(self.sums, other.sums, strict=True)
        return Part(self.records + other.records, tuple(a + b for a, b in pairs))

    def __repr__(self) -> str:
        """Show nothing of what it holds."""
        return "Part(private)"


def merged(parts: Iterable[Part]) -> Part:
    """Return the part of all records of some parts, at least one."""
    return reduce(Part.__add__, parts)
