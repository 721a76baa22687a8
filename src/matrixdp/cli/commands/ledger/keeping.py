"""``matrixdp ledger pending``, ``finish``, ``forfeit``, ``verify`` and ``rotate``: upkeep."""

import contextlib
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.shared.exit_codes import FalseClaimError
from matrixdp.cli.shared.ledgers import KeysOption, LedgerOption, opened_ledger
from matrixdp.cli.shared.options import AsJson
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import InvalidParameterError, LedgerError
from matrixdp.ledger import Ledger
from matrixdp.ledger.explanation import when
from matrixdp.ledger.stores import sqlite_path

__all__ = ["finish", "forfeit", "pending", "rotate", "verify"]

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


def verify(
    ledger: LedgerOption,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Releases, or their statements: each must be what the ledger says of it.",
        ),
    ] = None,
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Compute the chain of entries, every cost and all totals again, and compare.

    Exit code 5 if something does not agree. A ledger that was rewritten as a whole, or replaced by
    an older copy, is only noticed by its witnesses: what its clients have seen of it (beside the
    key file), and statements beside releases.
    """
    seen = []
    try:
        book = opened_ledger(ledger, keys)
    except LedgerError as error:
        # Without the keys it can be looked at.
        seen, book = [str(error)], Ledger.open(ledger)
    with book:
        found = book.verify()
        findings = [*seen, *found.findings, *book.verify_statements(files or [])]
    if as_json:
        print_json(
            {
                "ledger": book.address,
                "identity": found.ledger,
                "entries": found.entries,
                "statements": len(files or []),
                "verified": not findings,
                "findings": findings,
            }
        )
    elif findings:
        for finding in findings:
            typer.echo(finding)
    else:
        typer.echo(
            f"{book.address}: {found.entries} entries and all that follows from them agree"
            + (f"; releases compared: {len(files)}" if files else "")
        )
    if findings:
        raise FalseClaimError(f"NOT VERIFIED; findings: {len(findings)}")


def rotate(
    ledger: LedgerOption,
    new_keys: Annotated[
        Path,
        typer.Option(
            "--new-keys", metavar="FILE", help="The key file from now on; made if need be."
        ),
    ],
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Seal what is pending under another key file; erase the former one, which opens nothing more.

    Old copies of the ledger can still be opened by the former file. If that is lost, first give up
    what is pending.
    """
    with opened_ledger(ledger, keys) as book:
        former = "" if book.keys is None else str(book.keys.path)
        book.rotate_keys(new_keys)
    if as_json:
        print_json({"keys": str(new_keys), "former_keys": former})
        return
    typer.echo(f"the keys are {new_keys} from now on; erase {former or 'the former file'}")
