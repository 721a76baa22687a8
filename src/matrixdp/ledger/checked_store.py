"""A database of a ledger that is checked whenever it is used: by its identity, keys and marks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from matrixdp.errors import InvalidParameterError, LedgerError, MatrixDPError
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.schema import Head, check_version, head
from matrixdp.ledger.stores.store import Rows, Store, until_connected
from matrixdp.ledger.witness import HighWaterMark, Mark

__all__ = ["CheckedStore"]

T = TypeVar("T")


class CheckedStore:
    """The transactions of a ledger: none of them sees another ledger, or an older copy.

    Parameters
    ----------
    store : Store
        The database.
    keys : KeyFile, optional
        The key file, beside which is kept what was seen of the ledger.

    Raises
    ------
    InvalidParameterError
        If it is the key file of another ledger.
    LedgerError
        If the ledger is of another version, or older than what was seen of it.
    """

    def __init__(self, store: Store, keys: KeyFile | None = None) -> None:
        self._store = store
        self._use_keys(keys)
        seen = self._seen()
        with store.read() as rows, self._altered():
            found = head(rows)
            self._identity = found.ledger
            check_version(found.version, store.address)
            self._check(seen, rows)
            self.check_keys(rows)

    def _use_keys(self, keys: KeyFile | None) -> None:
        self._keys = keys
        # Beside the keys and not beside the ledger, whose backups would bring it back as well.
        self._mark = (
            None
            if keys is None
            else HighWaterMark(keys.path.with_name(keys.path.name + ".seen"), self.address)
        )

    @property
    def identity(self) -> str:
        """The name that the ledger got when it was made; statements and witnesses hold it."""
        return self._identity

    @property
    def address(self) -> str:
        """Where it is."""
        return self._store.address

    @property
    def keys(self) -> KeyFile | None:
        """The key file, if there is one."""
        return self._keys

    def check_keys(self, rows: Rows) -> None:
        """Raise if the key file is not, or no longer, the one of this ledger."""
        if self._keys is not None and self._keys.fingerprint != head(rows).key:
            raise InvalidParameterError(
                f"keys={str(self._keys.path)!r} is not the key file of {self.address}: pass the "
                "one that it was made with, or that its keys were rotated to"
            )

    def write(self, operation: Callable[[Rows], T]) -> T:
        """Return what an operation returns, done once and durable.

        Where a connection breaks nobody knows whether the changes are there, so an operation looks
        for its own before it makes them, and is tried again.
        """

        def attempt() -> tuple[T, Head]:
            seen = self._seen()
            with self._store.write() as rows, self._altered():
                self._check(seen, rows)
                return operation(rows), head(rows)

        result, written = until_connected(attempt)
        if self._mark is not None:
            self._mark.advance(written)
        return result

    def read(self, operation: Callable[[Rows], T]) -> T:
        """Return what an operation reads, of one moment."""

        def attempt() -> T:
            seen = self._seen()
            with self._store.read() as rows, self._altered():
                self._check(seen, rows)
                return operation(rows)

        return until_connected(attempt)

    def erase(self) -> None:
        """Overwrite deleted keys, as far as the database can."""
        self._store.erase()

    def close(self) -> None:
        """Give the connection back."""
        self._store.close()

    @contextmanager
    def _altered(self) -> Iterator[None]:
        """Turn what cannot be read from rows into an error that says so."""
        try:
            yield
        except MatrixDPError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise LedgerError(
                f"{self.address} was altered: what it holds cannot be read. Nothing was paid. Run "
                "`matrixdp ledger verify`"
            ) from error

    def _seen(self) -> list[Mark]:
        """Return the marks; before the rows, to which others add while they are looked at."""
        return [] if self._mark is None else self._mark.seen()

    def _check(self, seen: list[Mark], rows: Rows) -> None:
        found = head(rows)
        if found.ledger != self._identity:
            raise LedgerError(
                f"{self.address} holds another ledger than a moment ago. Nothing was paid"
            )
        if self._mark is not None:
            self._mark.check(seen, rows, found)

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
