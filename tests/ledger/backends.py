"""The databases that ledgers are tested on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matrixdp.ledger import Ledger

__all__ = ["Backend", "backends"]


class Backend:
    """SQLite."""

    @contextmanager
    def ledger(self, folder: Path) -> Iterator[Ledger]:
        """Yield a new ledger."""
        with Ledger.create(f"sqlite:///{folder}/a.ledger", keys=folder / "a.keys") as ledger:
            yield ledger

    def __str__(self) -> str:
        return "sqlite"


def backends() -> list[Backend]:
    """Return those that are there."""
    return [Backend()]
