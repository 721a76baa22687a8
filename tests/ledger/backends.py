"""The databases that ledgers are tested on."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from matrixdp.ledger import Ledger

__all__ = ["Backend", "PostgreSQL", "backends"]


class Backend:
    """SQLite."""

    def url(self, folder: Path) -> str:
        """Return the address of a ledger that may be made."""
        return f"sqlite:///{folder}/a.ledger"

    @contextmanager
    def ledger(self, folder: Path) -> Iterator[Ledger]:
        """Yield a new ledger, with `a.keys` in the folder."""
        with Ledger.create(self.url(folder), keys=folder / "a.keys") as ledger:
            yield ledger

    def change(self, url: str, statement: str) -> None:
        """Run a statement past the ledger, as somebody who can write the database."""
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
            connection.execute(statement)
            connection.commit()

    def __str__(self) -> str:
        return "sqlite"


class PostgreSQL(Backend):
    """A server on this machine."""

    def url(self, folder: Path) -> str:  # noqa: ARG002 - its files are elsewhere
        """Return the address of a new schema."""
        from ledger.server import server  # noqa: PLC0415 - skips without the extra `ledger`

        started = server()
        if started is None:
            pytest.skip("there is no PostgreSQL server: install Debian's package `postgresql`")
        return started.url(started.new_schema())

    def change(self, url: str, statement: str) -> None:
        """Run a statement past the ledger, as somebody who can write the database."""
        from ledger.server import server  # noqa: PLC0415

        started = server()
        assert started is not None
        started.command(statement, schema=url.rpartition("%3D")[2])

    def __str__(self) -> str:
        return "postgresql"


def backends() -> list[Backend]:
    """Return both; a test skips where there is no server."""
    return [Backend(), PostgreSQL()]
