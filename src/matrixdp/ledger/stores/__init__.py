"""Databases for the rows of a ledger: one interface, a module for each kind, their addresses."""

from collections.abc import Callable
from pathlib import Path

from matrixdp.errors import InvalidParameterError, MissingExtraError
from matrixdp.ledger.stores.sqlite import SQLiteStore
from matrixdp.ledger.stores.store import Rows, Store

__all__ = ["opened_store", "sqlite_path"]

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql+psycopg://", "postgresql://")


def sqlite_path(url: str) -> Path | None:
    """Return the file of an address, or None if it is not one of SQLite."""
    name = url.removeprefix(_SQLITE)
    return Path(name) if url.startswith(_SQLITE) and name else None


def opened_store(url: object, fill: Callable[[Rows], None] | None = None) -> Store:
    """Return the store of a URL; a new one if there is something to fill it with."""
    path = sqlite_path(url) if isinstance(url, str) else None
    if path is not None:
        return SQLiteStore(path) if fill is None else SQLiteStore.make(path, fill)
    if isinstance(url, str) and url.startswith(_POSTGRESQL):
        try:
            from matrixdp.ledger.stores.postgresql import PostgreSQLStore  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError(
                "a ledger on a PostgreSQL server needs sqlalchemy and psycopg: pip install "
                "'.[ledger]' in a clone of matrixdp"
            ) from error
        return PostgreSQLStore(url) if fill is None else PostgreSQLStore.make(url, fill)
    # Not the whole of it: there may be a password.
    kind = url.partition("://")[0] if isinstance(url, str) and "://" in url else type(url).__name__
    raise InvalidParameterError(
        f"url of kind {kind!r} is not the address of a ledger: pass sqlite:///FILE or "
        "postgresql+psycopg://USER@HOST/DATABASE"
    )
