"""Locks on open files, which end with the process at the latest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock", "locked"]


def lock(file: IO[bytes]) -> None:
    """Wait until no other process holds this file, and hold it until it is closed.

    Where the system has no such locks, nothing is held.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def locked(file: IO[bytes]) -> Iterator[None]:
    """Hold this file for a block, as `lock` does.

    It is let go of by name: a process that another thread forks meanwhile has a copy of the file,
    which would hold it on.
    """
    lock(file)
    try:
        yield
    finally:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
