"""``matrixdp verify``: the guarantee of a saved file, proven again."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from matrixdp.cli.shared.exit_codes import FalseClaimError
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.options import AsJson
from matrixdp.cli.shared.output import print_json
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.suffixes import with_word
from matrixdp.files.publishing.releases import verify_release
from matrixdp.files.publishing.stated_payment import read_payment
from matrixdp.files.publishing.statement import read_schema, statement_path
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["verify"]


def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A saved release; its statement is FILE.json.")
    ],
    as_json: AsJson = False,
) -> None:
    """Prove the guarantee of a saved release again, from the file and its statement FILE.json.

    The statement must describe this very file, its noise must give the guarantee, and the numbers
    must be such as that noise leaves behind. That the noise was really drawn, from secret random
    bits, no file can show. Exit code 5 if FILE does not prove its guarantee.
    """
    _check_names(file)
    try:
        schema = read_schema(file)
        guarantee, payment = _proven(file, schema), read_payment(file).payment
    except FileFormatError as error:
        if as_json:
            print_json({"file": str(file), "proven": False, "reason": str(error)})
        raise FalseClaimError(f"NOT PROVEN: {error}") from error
    if as_json:
        fields = {"file": str(file), "schema": schema, "proven": True, **asdict(guarantee)}
        paid = {} if payment is None else {"payment": msgspec.structs.asdict(payment)}
        print_json({**fields, **paid})
        return
    typer.echo(f"{file} proves its guarantee: {guarantee}")
    if payment is not None:
        # What is stated; the ledger itself has to be asked whether that is so.
        typer.echo(
            f"paid by account {payment.account}, entry {payment.sequence} of ledger "
            f"{payment.ledger}: `matrixdp ledger verify --ledger URL {file}` compares them"
        )


def _proven(file: Path, schema: str) -> Guarantee:
    """Return the guarantee that a file of some kind proves."""
    if schema.startswith("matrixdp-strategy/"):
        raise InvalidParameterError(
            f"{file} is a strategy: it holds no data and guarantees nothing; verify what workload "
            "answer wrote"
        )
    with interrupted_at_once():
        return _proven_release(file, schema)


def _proven_release(file: Path, schema: str) -> Guarantee:
    if schema.startswith("matrixdp-workload-release/"):
        # Late: workloads are slow to import.
        from matrixdp.files.publishing.workload_releases import load_workload_release  # noqa: PLC0415

        return load_workload_release(file).guarantee
    return verify_release(file)


def _check_names(file: Path) -> None:
    """Raise if there is nothing to verify, with the name of what was probably meant."""
    if not file.is_file():
        raise InvalidParameterError(f"{file} is not a file: name a saved release")
    if statement_path(file).is_file():
        return
    stated = file.with_suffix("")
    if file.suffix == ".json" and stated.is_file():
        raise InvalidParameterError(f"{file} is a statement: pass {stated}, which it is about")
    # Means over a private count follow from their sum, which has the statement.
    beside = with_word(file, "sum")
    if statement_path(beside).is_file():
        raise InvalidParameterError(
            f"{file} holds means, which follow from {beside} and its statement: verify that file"
        )
    raise InvalidParameterError(
        f"{statement_path(file)} is missing: a saved release is a file with its .json statement "
        "beside it, and answers that workload export wrote have none"
    )
