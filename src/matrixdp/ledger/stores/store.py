"""The interface of the databases that keep the rows of a ledger, and of lost connections."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from matrixdp.errors import StorageError

__all__ = ["LostConnectionError", "Rows", "Store", "until_connected"]

T = TypeVar("T")

# Seconds before each further attempt.
_PAUSES = (0.1, 0.5, 2.0, 5.0)


class LostConnectionError(StorageError):
    """A connection broke, and nobody knows whether what was written is there."""


class Rows(Protocol):
    """The rows of a ledger within one transaction."""

    def execute(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement of SQL, whose values are named ``:like_this``; return its rows."""


class Store(Protocol):
    """A database with the rows of one ledger."""

    @property
    def address(self) -> str:
        """Where it is, without a password."""

    def write(self) -> AbstractContextManager[Rows]:
        """Return a block that sees and changes the rows alone; its end is durable.

        If the block raises, nothing is changed.

        Raises
        ------
        StorageError
            If the database cannot be used; nothing is changed.
        LostConnectionError
            If nobody knows whether the changes are there: look, and do the same again if not.
        """

    def read(self) -> AbstractContextManager[Rows]:
        """Return a block that sees the rows as they are at one moment."""

    def erase(self) -> None:
        """Overwrite what deleted rows held, as far as the database can."""

    def close(self) -> None:
        """Give the connection back."""


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
