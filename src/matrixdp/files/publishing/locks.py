"""Locks on open files, which end with the process at the latest."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock"]


@contextmanager
def lock(file: IO[bytes]) -> Iterator[None]:
    """Wait until no other process holds this file, and hold it until the block ends.

    Where the system has no such locks, nothing is held.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Closing the file is not enough: a child that another thread forked meanwhile has it open.
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)
