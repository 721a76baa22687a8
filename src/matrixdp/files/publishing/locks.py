"""Locks on open files, which end with the process at the latest."""

from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock"]


def lock(file: IO[bytes]) -> None:
    """Wait until no other process holds this file, and hold it until it is closed.

    Where the system has no such locks, nothing is held.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
