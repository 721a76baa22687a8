"""The transactions of a ledger, as its accounts see them."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.stores.store import Rows

__all__ = ["Transactions"]

T = TypeVar("T")


class Transactions(Protocol):
    """What an account needs of its ledger."""

    @property
    def identity(self) -> str:
        """The name that the ledger got when it was made."""

    @property
    def keys(self) -> KeyFile | None:
        """The key file, if there is one."""

    def check_keys(self, rows: Rows, /) -> None:
        """Raise if the key file is not, or no longer, the one of the ledger."""

    def write(self, operation: Callable[[Rows], T], /) -> T:
        """Return what an operation returns, done once and durable; it may be tried again."""

    def read(self, operation: Callable[[Rows], T], /) -> T:
        """Return what an operation reads."""

    def erase(self) -> None:
        """Overwrite deleted keys."""
