"""Contiguous ranges of elements, each worked on by a thread of its own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from matrixdp.errors import InvalidParameterError
from matrixdp.noise.integers import checked_integer

__all__ = ["checked_threads", "even_ranges", "over_ranges"]


def checked_threads(threads: int) -> int:
    """Return the number of threads if it is a positive integer.

    Examples
    --------
    >>> checked_threads(2)
    2
    """
    number = checked_integer(threads, "threads")
    if not number >= 1:
        raise InvalidParameterError(f"threads must be at least 1, got threads={number!r}")
    return number


def even_ranges(size: int, parts: int) -> list[tuple[int, int]]:
    """Cut ``0 .. size`` into at most ``parts`` contiguous ranges of nearly equal length.

    Examples
    --------
    >>> even_ranges(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    bounds = [size * k // parts for k in range(parts + 1)]
    return [(first, last) for first, last in pairwise(bounds) if first < last]


def over_ranges(work: Callable[[int, int], None], size: int, threads: int, least: int) -> None:
    """Call ``work(first, last)`` for contiguous ranges that cover ``0 .. size``.

    Parameters
    ----------
    work : Callable[[int, int], None]
        Called once per range; what it raises is raised here.
    size : int
        How many elements.
    threads : int
        The most threads; with one, everything happens in the calling thread.
    least : int
        A range of fewer elements than this is not worth a thread.
    """
    ranges = even_ranges(size, max(1, min(threads, size // least)))
    if len(ranges) <= 1:
        for first, last in ranges:
            work(first, last)
        return
    with ThreadPoolExecutor(len(ranges)) as pool:
        futures = [pool.submit(work, first, last) for first, last in ranges]
    for future in futures:
        future.result()
