"""Contiguous ranges of elements, each worked on by a thread of its own."""

import os
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import Lock, Thread

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import checked_integer

__all__ = ["checked_threads", "over_ranges", "usable_cores"]

Work = Callable[[int, int], None]
"""Works on the elements ``first .. last - 1``."""


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


def usable_cores() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # systems that cannot bind a process to processors
        return os.cpu_count() or 1


def _even_ranges(size: int, parts: int) -> list[tuple[int, int]]:
    """Cut ``0 .. size`` into at most ``parts`` contiguous ranges of nearly equal length.

    Examples
    --------
    >>> _even_ranges(10, 3)
    [(0, 3), (3, 6), (6, 10)]
    """
    # In exact integers, so that the ranges have neither gaps nor overlaps.
    bounds = [size * k // parts for k in range(parts + 1)]
    return [(first, last) for first, last in pairwise(bounds) if first < last]


def over_ranges(work: Work, size: int, threads: int | None, least: int) -> None:
    """Call ``work(first, last)`` for contiguous ranges that cover ``0 .. size``.

    The calling thread and its helpers take one range after the other. Helpers are started anew by
    every call, so that there is nothing a fork could break; if one cannot be started, the others do
    its share. The caller works too, because two fresh threads often begin on one processor. When
    this returns or raises, no thread is working any more: an interrupt that comes while the caller
    waits for its helpers is raised when they have finished.

    Parameters
    ----------
    work : Callable[[int, int], None]
        Called at most once per range. An exception from it is raised here, and ranges that no
        thread has taken by then are dropped.
    size : int
        How many elements.
    threads : int or None
        The most threads, None for as many as there are processors; with one, everything happens in
        the calling thread.
    least : int
        The fewest elements for which starting a thread pays.
    """
    parts = size // least
    if parts > 1:
        parts = min(parts, usable_cores() if threads is None else threads)
    if parts <= 1:
        if size:
            work(0, size)
        return
    crew = _Crew(work, _even_ranges(size, parts))
    while not crew.done:
        try:
            crew.carry_on()
        except BaseException as error:  # noqa: BLE001 - raised below, when no thread works
            # Nothing but an assignment: an interrupt may come with every call, here too.
            crew.error = error
    crew.raise_error()


class _Crew:
    """The ranges that are left, and the helpers that take them beside the caller.

    A helper holds a lock of its own from before it takes its first range until it has finished its
    last. When no range is left, a thread that has acquired each lock once knows that no helper is
    working, and that none will. The locks are plain ones, since an interrupt within the Python code
    of a condition or an event can leave it locked.
    """

    def __init__(self, work: Work, ranges: list[tuple[int, int]]) -> None:
        self._work = work
        self._left = deque(ranges)
        self._at_work: list[Lock] = []
        self._errors_of_helpers: list[BaseException] = []
        self.error: BaseException | None = None
        self.done = False

    def carry_on(self) -> None:
        """Work on what is left, or after an error drop it, and wait for the helpers."""
        if self.error is not None:
            self._left.clear()
        # One helper fewer than there are ranges: the caller works too.
        for _ in range(1, len(self._left)):
            if not self._start_helper():
                break
        self._claim()
        # A helper that has not begun yet finds no range any more, and its lock is free.
        for lock in self._at_work:
            with lock:
                pass
        self.done = True

    def raise_error(self) -> None:
        """Raise the caller's error, or else the first of a helper, and keep none of them.

        Their tracebacks refer to this crew, and through the work to the value: a reference back
        would keep the private value alive until the next garbage collection.
        """
        errors = [*([] if self.error is None else [self.error]), *self._errors_of_helpers]
        self.error = None
        self._errors_of_helpers.clear()
        try:
            if errors:
                raise errors[0]
        finally:
            errors.clear()

    def _start_helper(self) -> bool:
        """Start a helper; return whether the system still has threads to give."""
        lock = Lock()
        self._at_work.append(lock)
        try:
            Thread(target=self._help, args=(lock,), daemon=True).start()
        except RuntimeError:  # there are too many, or the interpreter is about to end
            return False
        return True

    def _help(self, lock: Lock) -> None:
        """Take ranges; a helper that begins late finds none."""
        with lock:
            try:
                self._claim()
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                self._errors_of_helpers.append(error)
                self._left.clear()

    def _claim(self) -> None:
        """Work on ranges until none is left."""
        while True:
            try:
                # Atomic, so that a range is taken once. No lock: an interrupt could leave it held.
                part = self._left.popleft()
            except IndexError:
                return
            self._work(*part)
