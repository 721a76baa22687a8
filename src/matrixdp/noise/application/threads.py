"""Contiguous ranges of elements, each worked on by a thread of its own."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import Lock, Thread

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import checked_integer

__all__ = ["checked_threads", "even_ranges", "over_ranges"]

Work = Callable[[int, int], None]
"""Does what is to be done with the elements of a range, from the first to before the last."""


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


def over_ranges(work: Work, size: int, threads: int, least: int) -> None:
    """Call ``work(first, last)`` for contiguous ranges that cover ``0 .. size``.

    The calling thread and its helpers claim one range after the other. Helpers are started anew by
    every call, so that there is nothing a fork could break; where one cannot be started, the others
    do its share. The caller works too, because two fresh threads often begin on one processor.
    Nothing is at work any more when this returns or raises: an interrupt that comes while the
    caller waits for its helpers is raised when they are done.

    Parameters
    ----------
    work : Callable[[int, int], None]
        Called at most once per range. What it raises is raised here, and ranges that nobody has
        claimed by then are dropped.
    size : int
        How many elements.
    threads : int
        The most threads; with one, everything happens in the calling thread.
    least : int
        A range of fewer elements than this is not worth a thread.
    """
    crew = _Crew(work, even_ranges(size, max(1, min(threads, size // least))))
    while not crew.done:
        try:
            crew.carry_on()
        except BaseException as error:  # noqa: BLE001 - raised below, when nothing is at work
            crew.error = error  # and nothing else here: an interrupt may come with every call
    crew.raise_error()


class _Crew:
    """The ranges that are left, and the helpers that claim them beside the caller.

    A helper holds a lock of its own from before it claims a range until it has done its last: when
    nothing is left to claim, whoever has got hold of each lock once knows that no helper is at
    work, and that none will be. The locks are bare ones, since an interrupt within the Python code
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
        """Do what is left, or after an error none of it, and wait for the helpers."""
        if self.error is not None:
            self._left.clear()
        for _ in range(1, len(self._left)):
            if not self._start_helper():
                break
        self._claim()
        for lock in self._at_work:
            with lock:
                pass
        self.done = True

    def raise_error(self) -> None:
        """Raise the caller's error, or else the first of a helper, and keep none of them.

        Their tracebacks lead to this crew, and through the work to the value: a reference back
        would keep it alive until the next garbage collection.
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
        """Claim ranges; one that begins late finds none."""
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
                part = self._left.popleft()
            except IndexError:
                return
            self._work(*part)
