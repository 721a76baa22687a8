"""Connections that break: they are made again, and what was attempted is attempted again."""

import time
from collections.abc import Callable
from typing import TypeVar

from matrixdp.ledger.stores.store import LostConnectionError

__all__ = ["until_connected"]

T = TypeVar("T")

# Seconds before each further attempt.
_PAUSES = (0.1, 0.5, 2.0, 5.0)


def until_connected(attempt: Callable[[], T]) -> T:
    """Return what an attempt returns; it looks for what an earlier one has done.

    Raises
    ------
    LostConnectionError
        If the connection breaks again and again.
    """
    for pause in _PAUSES:
        try:
            return attempt()
        except LostConnectionError:
            time.sleep(pause)
    return attempt()
