"""Locks on open files and folders, which end with the process at the latest."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no such locks
    fcntl = None  # type: ignore[assignment]

__all__ = ["folder_locked", "locked"]


@contextmanager
def locked(file: IO[bytes] | int) -> Iterator[None]:
    """Wait until no other process holds this file, and hold it as long as the block runs.

    Where the system has no such locks, nothing is held.
    """
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Closing alone would leave it to a child that was forked meanwhile and has the file, too:
        # it would wait for itself.
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Hold a folder as `locked` holds a file; nothing is held where it may not be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        with locked(handle):
            yield
    finally:
        os.close(handle)
