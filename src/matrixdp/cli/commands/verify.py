"""``matrixdp verify``: the guarantee of a saved file, proven again."""

import glob
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from matrixdp.cli.shared.exit_codes import FalseClaimError
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.options import (
    AsJson,
    SchedulerOption,
)
from matrixdp.cli.shared.output import print_json
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.chunk_folders import read_layout_of
from matrixdp.files.formats.chunk_layout import Mapper, by_threads
from matrixdp.files.formats.suffixes import CHUNKED, with_word
from matrixdp.files.publishing.chunked_release import verified_chunks
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.publishing.verification import Statement, verified_file
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.queries.record_files import is_pattern

__all__ = ["check_kind", "verify"]


def verify(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A saved release, or its folder of chunks; its statement is FILE.json. Or a "
            "pattern in quotation marks, such as 'out-*.csv', for all releases that match.",
        ),
    ],
    scheduler: SchedulerOption = None,
    as_json: AsJson = False,
) -> None:
    """Prove the guarantee of a saved release again, from the file and its statement FILE.json.

    The statement must describe this very file, its noise must give the guarantee, and the numbers
    must be such as that noise leaves behind. That the noise was really drawn, from secret random
    bits, no file can show. Exit code 5 if FILE does not prove its guarantee.
    """
    outcomes = [_reason_against(each, scheduler, as_json) for each in _releases(file)]
    reasons = [reason for reason in outcomes if reason is not None]
    if reasons:
        raise FalseClaimError(f"NOT PROVEN: {'; '.join(reasons)}")


def _releases(file: Path) -> list[Path]:
    """Return the releases that a path or a pattern names; all of them are there."""
    if not is_pattern(file):
        _check_names(file)
        return [file]
    matches = sorted(map(Path, glob.glob(str(file), recursive=True)))  # noqa: PTH207 - also absolute
    statements = {statement_path(match) for match in matches}
    releases = [match for match in matches if match not in statements]
    if not releases:
        raise InvalidParameterError(f"no file matches {str(file)!r}: name saved releases")
    for release in releases:
        _check_names(release)
    return releases


def _reason_against(file: Path, scheduler: str | None, as_json: bool) -> str | None:
    """Show what a release proves, and return why it proves nothing, if that is so."""
    try:
        statement, guarantee = _proven(file, scheduler)
    except FileFormatError as error:
        if as_json:
            print_json({"file": str(file), "proven": False, "reason": str(error)})
        return str(error)
    payment = statement.payment
    if as_json:
        said = {"file": str(file), "schema": statement.schema, "proven": True}
        fields = {**said, **asdict(guarantee)}
        paid = {} if payment is None else {"payment": msgspec.structs.asdict(payment)}
        print_json({**fields, **paid})
        return None
    typer.echo(f"{file} proves its guarantee: {guarantee}")
    if payment is not None:
        # What is stated; the ledger itself has to be asked whether that is so.
        typer.echo(
            f"paid by account {payment.account}, entry {payment.sequence} of ledger "
            f"{payment.ledger}: `matrixdp ledger verify --ledger URL {file}` compares them"
        )
    return None


def _proven(file: Path, scheduler: str | None) -> tuple[Statement, Guarantee]:
    """Return the statement of a file or a folder, and the guarantee that both prove."""
    if file.is_dir():
        return _proven_in_chunks(file, scheduler)
    if scheduler is not None:
        raise InvalidParameterError(f"--scheduler is for folders of chunks, and {file} is a file")
    with interrupted_at_once():
        return verified_file(file)


def _proven_in_chunks(folder: Path, scheduler: str | None) -> tuple[Statement, Guarantee]:
    """Prove one chunk after another: by threads, or on a running cluster."""
    with ExitStack() as stack:
        mapper: Mapper = by_threads
        if scheduler is not None:
            # Late: Dask is an extra, and slow to import. Threads need none.
            from matrixdp.distributed.clusters import connected, mapper_on  # noqa: PLC0415

            mapper = mapper_on(stack.enter_context(connected(scheduler)))
        else:
            stack.enter_context(interrupted_at_once())
        rows, columns = read_layout_of(folder).grid
        advance = stack.enter_context(progress_bar(rows * columns, "Checking chunks", after=1.0))
        return verified_chunks(folder, mapper=mapper, advance=advance)


def check_kind(file: Path) -> None:
    """Raise if a file is no release, with the name of what was probably meant."""
    is_folder = bool(file.name) and file.is_dir()
    if not (file.is_file() or is_folder):
        raise InvalidParameterError(f"{file} is not a file: name a saved release")
    if statement_path(file).is_file():
        return
    if is_folder and file.suffix.lower() not in CHUNKED:
        raise InvalidParameterError(f"{file} is not a file: name a saved release")
    stated = file.with_suffix("")
    if file.suffix == ".json" and stated.exists():
        raise InvalidParameterError(f"{file} is a statement: pass {stated}, which it is about")
    # Means over a private count follow from their sum, which has the statement.
    beside = with_word(file, "sum")
    if statement_path(beside).is_file():
        raise InvalidParameterError(
            f"{file} holds means, which follow from {beside} and its statement: verify that file"
        )


def _check_names(file: Path) -> None:
    """Raise if there is nothing to verify."""
    check_kind(file)
    if not statement_path(file).is_file():
        raise InvalidParameterError(
            f"{statement_path(file)} is missing: a saved release is a file with its .json "
            "statement beside it, and answers that workload export wrote have none"
        )
