"""``matrixdp report``: a page for the person who signs."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from matrixdp.cli.commands.verify import check_kind
from matrixdp.cli.shared.exit_codes import FalseClaimError
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.ledgers import (
    KeysOption,
    OptionalAccountOption,
    OptionalLedgerOption,
    opened_ledger,
)
from matrixdp.cli.shared.options import AsJson, Force
from matrixdp.cli.shared.output import check_file, print_json
from matrixdp.errors import InvalidParameterError, LedgerError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.report import Report, page_of, registry_file, report_on

__all__ = ["report"]


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Saved releases, each with FILE.json beside it."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Write the page into this .html file.")],
    ledger: OptionalLedgerOption = None,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    registry: Annotated[
        Path | None,
        typer.Option(
            "--registry",
            help="Also write a draft of an entry for the OpenDP deployments registry into this "
            ".yaml file.",
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a page for the person who signs: what files guarantee, in words and in numbers.

    Every file is proven again, as by `matrixdp verify`; with --ledger and --account the page also
    shows the whole account, and whether ledger and files agree. Exit code 5 if they do not, or if a
    file does not prove its guarantee: the page then says so.
    """
    if (ledger is None) != (account is None):
        raise InvalidParameterError("pass --ledger and --account together, or neither of them")
    check_file(out, ".html", force=force)
    check_file(registry, ".yaml", force=force)
    for file in files:
        check_kind(file)
    found = _found(files, ledger, account, keys)
    contents = [(out, page_of(found, datetime.now(UTC)))]
    if registry is not None and not found.problems:
        contents.append((registry, registry_file(found)))
    write_all(contents, force=force)
    if as_json:
        print_json(_fields(found, [path for path, _ in contents]))
    else:
        for path, _ in contents:
            typer.echo(f"wrote {path}")
        if found.together is not None and not found.problems:
            typer.echo(f"all files together, if planned beforehand: {found.together}")
    if found.problems:
        raise FalseClaimError(
            f"NOT AS CLAIMED; findings: {found.problems}; {out} shows them"
            + ("" if registry is None else f", and {registry} was not written")
        )


def _found(files: list[Path], ledger: str | None, account: str | None, keys: Path | None) -> Report:
    if ledger is None:
        with interrupted_at_once():
            return report_on(files)
    try:
        with opened_ledger(ledger, keys) as book:
            return report_on(files, ledger=book, account=account)
    except LedgerError as error:
        raise FalseClaimError(f"NOT AS CLAIMED: {error}") from error


def _fields(found: Report, written: list[Path]) -> dict[str, object]:
    together = found.together
    return {
        "written": [str(path) for path in written],
        "files": [
            {
                "file": str(file.path),
                "sha256": file.sha256,
                "proven": file.verified is not None,
                **({} if file.verified is not None else {"reason": file.reason}),
            }
            for file in found.files
        ],
        "findings": [] if found.account is None else list(found.account.findings),
        "together": None
        if together is None
        else {
            "epsilon": together.epsilon,
            "delta": together.delta,
            "mu": together.mu,
            "neighbouring": together.neighbouring,
        },
    }
