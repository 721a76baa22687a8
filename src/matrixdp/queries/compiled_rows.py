# ruff: noqa: FURB136 - of max() numba makes code that takes longer
"""Loops over rows of records that numba compiles (extra ``fast``): the integers of `RecordGrid`.

Numbers pass through the cache once instead of once for each operation. What they leave to numpy
are rows that hardly occur: far outside their bounds, or not finite.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels import available_kernels
from matrixdp.noise.kernels.compiling import compiled

__all__ = ["clipping_loop", "rounding_loop", "squared_below", "totals_loop", "worth_compiling"]

# With fewer numbers, loading the compiled code takes longer than it saves.
_LEAST_NUMBERS = 1 << 12
# Integers of at most 2**21 add up to less than 2**31.
_ROWS_TOGETHER = 512
_EXACT_SQUARES = 2**53
_LONGEST = 2.0**21
_STRICT: frozenset[str] = frozenset()


def squared_below(columns: int) -> float:
    """Return a bound of integers below which they fit 32 bits, and the sum of their squares 63.

    Examples
    --------
    >>> squared_below(256) == 2.0**27
    True
    """
    return 2.0 ** min(30, (62 - (columns - 1).bit_length()) // 2)


def worth_compiling(numbers: int) -> bool:
    """Return whether numba is there, and enough numbers for it."""
    return numbers >= _LEAST_NUMBERS and "numba" in available_kernels()


@lru_cache(maxsize=4)
def rounding_loop(value_bytes: int, *, boxed: bool) -> Callable[..., int]:
    """Compile what rounds rows of 8 or 4 bytes a number, and lists those that may be outside."""
    kind = np.float32 if value_bytes == 4 else np.float64
    largest, nothing = np.finfo(kind).max, kind(0)

    def loop(  # noqa: PLR0917 - compiled code takes arrays
        records: NDArray[Any],
        factors: NDArray[Any],
        lowest: NDArray[Any],
        highest: NDArray[Any],
        limit: Any,
        whole: NDArray[Any],
        suspects: NDArray[np.int64],
    ) -> int:
        """Return how many rows have squares above the limit, or numbers that are not finite."""
        count = 0
        for i in range(records.shape[0]):
            squares, wild = nothing, False
            for j in range(records.shape[1]):
                number = np.rint(records[i, j] * factors[j])
                if boxed:
                    number = number if number > lowest[j] else lowest[j]
                    number = number if number < highest[j] else highest[j]
                    wild |= not abs(records[i, j]) <= largest
                whole[i, j] = number
                squares += number * number
            if wild or not squares <= limit:
                suspects[count] = i
                count += 1
        return count

    def signature(types: Any) -> Any:
        number, given = _types(types, value_bytes)
        sides = types.Array(number, 1, "C", readonly=True)
        return types.int64(given, sides, sides, sides, number, number[:, ::1], types.int64[::1])

    # In whatever order squares are added up, the sum shows what `RecordGrid` says it shows.
    return compiled(loop, signature, relaxations=frozenset({"reassoc"}))


@lru_cache(maxsize=4)
def clipping_loop(value_bytes: int, *, boxed: bool) -> Callable[..., int]:  # noqa: C901
    """Compile what scales the rows that are outside the norm down to it."""
    kind = np.float32 if value_bytes == 4 else np.float64
    largest, exact_below, longest = np.finfo(kind).max, _EXACT_SQUARES, _LONGEST

    def loop(  # noqa: C901, PLR0917 - compiled code takes arrays
        records: NDArray[Any],
        lowest: NDArray[np.float64],
        highest: NDArray[np.float64],
        step: float,
        below: Any,
        most_squares: int,
        length: float,
        whole: NDArray[Any],
        suspects: NDArray[np.int64],
        count: int,
    ) -> int:
        """Do what `RecordGrid` does with suspects; list and count those that are left to it."""
        left = 0
        inverse = 1.0 / step
        for k in range(count):
            i = suspects[k]
            tame = True
            for j in range(records.shape[1]):
                tame &= (abs(records[i, j]) <= largest) & (abs(whole[i, j]) < below)
            squares = np.int64(0)
            if tame:
                for j in range(records.shape[1]):
                    number = np.int64(np.int32(whole[i, j]))
                    squares += number * number
            if not tame or squares >= exact_below:
                suspects[left] = i
                left += 1
            elif squares > most_squares:
                scale = length / np.sqrt(np.float64(squares)) * inverse
                squares, fits = np.int64(0), True
                for j in range(records.shape[1]):
                    record = np.float64(records[i, j])
                    if boxed:
                        low, high = lowest[j] * step, highest[j] * step
                        record = record if record > low else low
                        record = record if record < high else high
                    rounded = np.rint(record * scale)
                    if boxed:
                        rounded = rounded if rounded > lowest[j] else lowest[j]
                        rounded = rounded if rounded < highest[j] else highest[j]
                    whole[i, j] = rounded
                    inside = abs(rounded) <= longest
                    fits &= inside
                    integer = np.int64(np.int32(rounded if inside else 0.0))
                    squares += integer * integer
                # True by the choice of the length. Tested all the same: privacy rests on it.
                if not fits or squares > most_squares:
                    whole[i, :] = 0.0
        return left

    def signature(types: Any) -> Any:
        number, given = _types(types, value_bytes)
        sides = types.Array(types.float64, 1, "C", readonly=True)
        numbers = (types.float64, number, types.int64, types.float64)
        return types.int64(
            given, sides, sides, *numbers, number[:, ::1], types.int64[::1], types.int64
        )

    return compiled(loop, signature, relaxations=_STRICT)


@lru_cache(maxsize=1)
def totals_loop() -> Callable[..., None]:
    """Compile what adds up the columns of integers in float32."""
    together = _ROWS_TOGETHER

    def loop(
        whole: NDArray[np.float32], some: NDArray[np.int32], totals: NDArray[np.int64]
    ) -> None:
        """Add the sums to ``totals``; ``some`` is work space."""
        rows, columns = whole.shape
        for start in range(0, rows, together):
            some[:] = 0
            for i in range(start, min(start + together, rows)):
                for j in range(columns):
                    some[j] += np.int32(whole[i, j])
            for j in range(columns):
                totals[j] += some[j]

    def signature(types: Any) -> Any:
        given = types.Array(types.float32, 2, "C", readonly=True)
        return types.void(given, types.int32[::1], types.int64[::1])

    return compiled(loop, signature, relaxations=_STRICT)


def _types(types: Any, value_bytes: int) -> tuple[Any, Any]:
    """Return the type of a number, and that of records, which may be read-only."""
    number = types.float32 if value_bytes == 4 else types.float64
    return number, types.Array(number, 2, "C", readonly=True)
