"""``matrixdp ledger verify`` and ``rotate``: evidence, and keys."""

from pathlib import Path
from typing import Annotated

import typer

from matrixdp.cli.shared.exit_codes import FalseClaimError
from matrixdp.cli.shared.ledgers import KeysOption, LedgerOption, opened_ledger
from matrixdp.cli.shared.options import AsJson
from matrixdp.cli.shared.output import print_json
from matrixdp.errors import LedgerError
from matrixdp.ledger import Ledger

__all__ = ["rotate", "verify"]


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
