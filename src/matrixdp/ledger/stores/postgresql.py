"""A ledger on a PostgreSQL server, for the processes of many machines.

Every writer first locks the one row of the table `head`, for which the server queues them fairly. A
schema holds one ledger: several ledgers of one database have schemas of their own, which their
addresses name (``?options=-csearch_path%3Dstudy``).
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import errors as refusals
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError

from matrixdp.errors import InvalidParameterError, MatrixDPError, StorageError
from matrixdp.ledger.stores.store import LostConnectionError, Rows
from matrixdp.processes import current_process

__all__ = ["PostgreSQLStore"]

_DRIVER = "postgresql+psycopg"
# What an address shows of the options of a URL: passwords can be among the others.
_PUBLIC_OPTIONS = frozenset({"host", "port", "options"})
# A commit that is not on the disk can be lost, and a program that vanishes must not keep the lock.
_DURABLE = """
    SELECT set_config('synchronous_commit', 'on', true),
        set_config('idle_in_transaction_session_timeout', '60s', true),
        current_setting('fsync'), current_setting('full_page_writes')
"""
# With the lock, in one message.
_DURABLE_AND_ALONE = f"{_DURABLE} FROM head FOR UPDATE"
# What a forked child has of its parent: closing it there would end the parent's connections.
_OF_THE_PARENT: list[Engine] = []


class _ServerRows:
    """The rows within a transaction of a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement."""
        found = self._connection.execute(text(statement), values)
        return [tuple(row) for row in found] if found.returns_rows else []


class PostgreSQLStore:
    """A schema of a PostgreSQL database.

    Parameters
    ----------
    url : str
        ``postgresql+psycopg://user@host/database``. A password is better kept in a password file
        of PostgreSQL than here.

    Raises
    ------
    InvalidParameterError
        If this is no such address.
    """

    def __init__(self, url: str) -> None:
        self._url = _checked(url)
        self._engine = _engine(self._url)
        self._process = current_process()

    @property
    def address(self) -> str:
        """The server, database and schema, without a password."""
        url = self._url
        shown = {name: value for name, value in url.query.items() if name in _PUBLIC_OPTIONS}
        plain = URL.create(_DRIVER, url.username, None, url.host, url.port, url.database, shown)
        return plain.render_as_string()

    @classmethod
    def make(cls, url: str, fill: Callable[[Rows], None]) -> "PostgreSQLStore":
        """Return a schema after its tables were filled, all of them or none."""
        store = cls(url)
        with store._transaction() as connection, _taken_names(store.address):
            _check_durable(connection, _DURABLE, store.address)
            fill(_ServerRows(connection))
        return store

    @contextmanager
    def write(self) -> Iterator[Rows]:
        """Yield the rows, alone; see `Store.write`."""
        # Whatever the server's default is: it must see what was committed while it waited.
        with self._transaction(isolation_level="READ COMMITTED") as connection:
            _check_durable(connection, _DURABLE_AND_ALONE, self.address)
            yield _ServerRows(connection)

    @contextmanager
    def read(self) -> Iterator[Rows]:
        """Yield the rows of one moment."""
        with self._transaction(isolation_level="REPEATABLE READ") as connection:
            yield _ServerRows(connection)

    def erase(self) -> None:
        """Do nothing: deleted rows stay in files and archives of the server.

        Only `Ledger.rotate_keys` makes the keys in them useless.
        """

    def close(self) -> None:
        """Close the connections of this process."""
        self._engine_of_this_process().dispose()

    def __del__(self) -> None:
        """Close what is open."""
        if getattr(self, "_process", None) == current_process():
            self._engine.dispose()

    @contextmanager
    def _transaction(self, **options: Any) -> Iterator[Connection]:
        """Yield a connection whose changes are kept if the block ends, and only then."""
        with (
            _server_errors(self.address),
            self._engine_of_this_process().execution_options(**options).begin() as connection,
        ):
            yield connection

    def _engine_of_this_process(self) -> Engine:
        if self._process != current_process():
            _OF_THE_PARENT.append(self._engine)
            self._engine = _engine(self._url)
            self._process = current_process()
        return self._engine


def _checked(url: str) -> URL:
    try:
        # Without a driver it means psycopg as well.
        return make_url(url).set(drivername=_DRIVER)
    except (ArgumentError, ValueError):
        # Not the URL, which may hold a password.
        raise InvalidParameterError(
            "url is not the address of a PostgreSQL database: pass "
            "postgresql+psycopg://USER@HOST/DATABASE, with signs such as @ and / in a password "
            "written as %40 and %2F"
        ) from None


def _engine(url: URL) -> Engine:
    return create_engine(
        url,
        # A thread waits for a connection as long as for the lock.
        max_overflow=0,
        pool_timeout=threading.TIMEOUT_MAX,
        hide_parameters=True,
        connect_args={"client_encoding": "utf8"},
    )


def _check_durable(connection: Connection, statement: str, address: str) -> None:
    # No row if the ledger was altered, which its head is looked at for.
    for *_, fsync, whole_pages in connection.execute(text(statement)):
        if (fsync, whole_pages) != ("on", "on"):
            raise StorageError(
                f"the server of {address} loses payments in a power cut (fsync={fsync}, "
                f"full_page_writes={whole_pages}): switch both on. Nothing was paid"
            )


@contextmanager
def _taken_names(address: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        # The second of two that are made at once finds its name in the catalogue of the server.
        if isinstance(error.orig, refusals.DuplicateTable | refusals.UniqueViolation):
            raise InvalidParameterError(
                f"{address} has a ledger, or other tables of the same names: open it, or name "
                "another database or, with ?options=-csearch_path%3DNAME, another schema"
            ) from None
        raise


@contextmanager
def _server_errors(address: str) -> Iterator[None]:
    """Turn errors of the server into ones that quote no values of a statement."""
    try:
        yield
    except DBAPIError as error:
        # Not chained: the server's own words may quote whole rows, sealed keys and all.
        raise _translated(error, address) from None


def _translated(error: DBAPIError, address: str) -> MatrixDPError:
    reason = _reason(error.orig)
    if isinstance(error.orig, refusals.UndefinedTable):
        return InvalidParameterError(
            f"there is no ledger at {address}: name an existing one, or make it with "
            "Ledger.create(...) or `matrixdp ledger create`"
        )
    # Without a statement: it could not even connect.
    if error.connection_invalidated or error.statement is None:
        return LostConnectionError(
            f"the connection to the ledger {address} broke: {reason}. If this was a payment, the "
            "history of the ledger says whether it was made; the same request pays once"
        )
    return StorageError(f"the ledger {address} cannot be used: {reason}. Nothing was written to it")


def _reason(error: BaseException | None) -> str:
    if isinstance(error, refusals.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return next(iter(str(error).splitlines()), type(error).__name__)
