"""Contiguous ranges of elements, each worked on by a thread of its own."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
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

    The calling thread takes the first range and helpers the others; a range that no helper has
    begun when the caller is done with its own is the caller's too. Nothing is at work any more when
    this returns or raises.

    Parameters
    ----------
    work : Callable[[int, int], None]
        Called once per range, and never calls ``over_ranges`` itself; what it raises is raised
        here.
    size : int
        How many elements.
    threads : int
        The most threads; with one, everything happens in the calling thread.
    least : int
        A range of fewer elements than this is not worth a thread.
    """
    ranges = even_ranges(size, max(1, min(threads, size // least)))
    if not ranges:
        return
    helpers = _helpers(os.getpid(), threads - 1) if len(ranges) > 1 else None
    given = [(helpers.submit(work, *part), part) for part in ranges[1:]] if helpers else []
    try:
        work(*ranges[0])
        for future, part in given:
            if future.cancel():
                work(*part)
    finally:
        begun = [future for future, _ in given if not future.cancel()]
        wait(begun)
    for future in begun:
        future.result()


@lru_cache(maxsize=1)
def _helpers(process: int, number: int) -> ThreadPoolExecutor:
    """Return helpers that are kept, as starting a thread takes as long as 30,000 elements do.

    A thread is started when first needed. Threads do not survive a fork: each process has its own.
    """
    return ThreadPoolExecutor(number, thread_name_prefix=f"matrixdp-noise-{process}")
