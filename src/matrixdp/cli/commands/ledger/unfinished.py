"""``matrixdp ledger pending``, ``finish`` and ``forfeit``: releases that are paid and not out."""

import contextlib
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.shared.ledgers import KeysOption, LedgerOption, opened_ledger
from matrixdp.cli.shared.options import AsJson
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.explanation import when
from matrixdp.ledger.stores.opening import sqlite_path

__all__ = ["finish", "forfeit", "pending"]

Request: TypeAlias = Annotated[
    str, typer.Argument(metavar="REQUEST", help="A release, as `ledger pending` names it.")
]


def pending(ledger: LedgerOption, keys: KeysOption = None, as_json: AsJson = False) -> None:
    """List the releases that are paid and not out: to be finished, or given up."""
    with opened_ledger(ledger, keys) as book:
        waiting = book.pending()
        times = {one.release: book.payment(one.release).time for one in waiting}
    if as_json:
        print_json(
            {
                "pending": [
                    {
                        "request": one.release,
                        "account": one.account,
                        "output": one.target,
                        "time": times[one.release],
                    }
                    for one in waiting
                ]
            }
        )
    elif waiting:
        print_table(
            ["request", "account", "paid", "file"],
            [[one.release, one.account, when(times[one.release]), one.target] for one in waiting],
        )
    else:
        typer.echo("nothing is pending: whatever was paid is out or given up")


def finish(
    request: Request,
    ledger: LedgerOption,
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Finish a release that is paid: note that its files are there, or repeat its command.

    The command is run in the folder where it was run first, on the same files, and pays nothing.
    The noise has the same bits.
    """
    with opened_ledger(ledger, keys) as book:
        try:
            target = book.finish(request)
        except InvalidParameterError:
            # It needs its value again. Who pays in Python passes it there.
            payer = book.paying_account(request)
            if payer.command is None:
                raise
            # The address is relative to the folder of this call, not to that of the command.
            address = ledger if sqlite_path(ledger) is None else book.address
            options = ["--ledger", address, "--account", payer.name]
            options += [] if book.keys is None else ["--keys", str(book.keys.path)]
        else:
            _report(request, target, as_json=as_json)
            return
    arguments = list(payer.command.arguments)
    if as_json and "--json" not in arguments:
        options.append("--json")
    index = arguments.index("--request")
    arguments[index:index] = options
    _repeat(Path(payer.command.folder), arguments)


def forfeit(
    request: Request,
    ledger: LedgerOption,
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Give up a release that is paid and not out: its key is destroyed, its cost stays spent."""
    with opened_ledger(ledger, keys) as book:
        book.forfeit(request)
    if as_json:
        print_json({"request": request, "forfeited": True})
        return
    typer.echo(f"{request} is given up: its key is destroyed, and what it cost stays spent")


def _report(request: str, target: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"request": request, "output": str(target)})
        return
    typer.echo(f"{request} is out as {target}")


def _repeat(folder: Path, arguments: list[str]) -> None:
    from matrixdp.cli.main import main  # noqa: PLC0415 - which imports this module

    if not folder.is_dir():
        raise InvalidParameterError(
            f"the command was run in {folder}, which is not there any more: bring it back, or give "
            "the release up"
        )
    with contextlib.chdir(folder):
        code = main(arguments)
    if code:
        raise typer.Exit(code)
