"""The options that name a ledger, an account and a release, and the opening of what they name.

The ledger itself is imported late: commands that use none must not wait for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from matrixdp.ledger import Ledger

__all__ = [
    "AccountOption",
    "KeysOption",
    "LedgerOption",
    "OptionalAccountOption",
    "OptionalLedgerOption",
    "RequestOption",
    "default_keys",
    "opened_ledger",
]

_LEDGER = typer.Option(
    "--ledger",
    metavar="URL",
    help="The ledger: sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE.",
)
_ACCOUNT = typer.Option(
    "--account",
    metavar="NAME",
    help="The account of the ledger: its name, after that of the account above it and a slash.",
)
LedgerOption: TypeAlias = Annotated[str, _LEDGER]
OptionalLedgerOption: TypeAlias = Annotated[str | None, _LEDGER]
AccountOption: TypeAlias = Annotated[str, _ACCOUNT]
OptionalAccountOption: TypeAlias = Annotated[str | None, _ACCOUNT]
KeysOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        envvar="MATRIXDP_LEDGER_KEYS",
        help="The key file of the ledger; default: FILE.keys beside the FILE of an SQLite ledger.",
    ),
]
RequestOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--request",
        metavar="NAME",
        help="With --ledger: a name for this release. A second run with that name pays nothing, "
        "and finishes what the first one has left. Default: a fresh name.",
    ),
]


def opened_ledger(url: str, keys: Path | None) -> "Ledger":
    """Return the ledger of the options, with its key file if that is named or in its place."""
    from matrixdp.ledger import Ledger  # noqa: PLC0415

    beside = default_keys(url)
    if keys is None and beside is not None and beside.exists():
        keys = beside
    return Ledger.open(url, keys=keys)


def default_keys(url: str) -> Path | None:
    """Return where the keys of an SQLite ledger are unless they are named, or None of others."""
    from matrixdp.ledger.stores import sqlite_path  # noqa: PLC0415

    path = sqlite_path(url)
    return None if path is None else path.with_name(path.name + ".keys")
