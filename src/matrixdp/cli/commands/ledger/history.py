"""``matrixdp ledger history`` and ``explain``: what happened, as a table, a figure, and words."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from matrixdp.cli.commands.ledger.figure import drawn_history
from matrixdp.cli.shared.figures import file_format
from matrixdp.cli.shared.ledgers import (
    KeysOption,
    LedgerOption,
    OptionalAccountOption,
    opened_ledger,
)
from matrixdp.cli.shared.options import AsJson, Figure, Force, count_option
from matrixdp.cli.shared.output import check_file, print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.ledger import Balance, Entry
from matrixdp.ledger.explanation import PAYMENTS, share, what_for, when

__all__ = ["explain", "history"]


def history(
    ledger: LedgerOption,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    last: Annotated[
        int | None, count_option("--last", "Only the last so many entries; default: all.")
    ] = None,
    figure: Figure = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show all entries, or those of an account and the accounts below it, in their order.

    The figure shows how much of each budget was spent over time.
    """
    if figure is not None and last is not None:
        raise InvalidParameterError("pass --last or --figure, not both: a figure shows all entries")
    check_file(figure, ".png", ".svg", force=force)
    with opened_ledger(ledger, keys) as book:
        if account is not None:
            book.account(account)  # raises if there is none
        entries = book.history(account, last=last)
        known = {one.name: one for one in book.accounts()}
        address = book.address
    if figure is not None:
        shown = [one for one in known.values() if account in (None, one.name)]
        write_all([(figure, drawn_history(entries, shown, file_format(figure)))], force=force)
        typer.echo(f"wrote {figure}", err=True)
    if as_json:
        print_json({"ledger": address, "entries": [_fields(entry) for entry in entries]})
    elif figure is None:
        print_table(
            ["entry", "time", "account", "by", "what", "cost"],
            list(_rows(entries, known)),
            title=address,
        )


def explain(
    ledger: LedgerOption,
    request: Annotated[
        str | None,
        typer.Argument(metavar="[REQUEST]", help="A release or a training run; default: all."),
    ] = None,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    as_json: AsJson = False,
) -> None:
    """Say in words who spent what, when, and on what; what is left, and what is pending."""
    if request is not None and account is not None:
        raise InvalidParameterError("pass REQUEST or --account, not both")
    with opened_ledger(ledger, keys) as book:
        if request is not None:
            texts = [book.explain_release(request)]
        else:
            names = [one.name for one in book.accounts()] if account is None else [account]
            texts = [book.explain(name) for name in names]
    if as_json:
        print_json({"explanations": texts})
        return
    typer.echo("\n\n".join(texts))


def _fields(entry: Entry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "time": entry.time,
        "kind": entry.kind,
        "account": entry.account,
        "request": entry.release,
        "facts": json.loads(entry.body),
        "digest": entry.digest,
    }


def _rows(entries: Sequence[Entry], known: dict[str, Balance]) -> Iterator[list[str]]:
    """Yield the rows of a table; the steps of a run that follow each other are one."""
    for (kind, _), group in itertools.groupby(entries, lambda each: (each.kind, each.release)):
        together = list(group)
        if kind != "step":
            yield from (_row(entry, known) for entry in together)
            continue
        first, last = together[0], together[-1]
        steps = f"steps {first.facts['step']} to {last.facts['step']} of run {last.release}"
        number = f"{first.sequence} to {last.sequence}"
        yield [number, when(last.time), last.account, "", steps, ""]


def _row(entry: Entry, known: dict[str, Balance]) -> list[str]:
    facts, cost = entry.facts, ""
    match entry.kind:
        case "open":
            what = f"opened: {known[entry.account].terms.in_words}"
        case "publish":
            what = f"out: {entry.release}"
        case "forfeit":
            what = f"given up: {entry.release}"
        case "rotate":
            what = "other keys"
        case _:
            what = f"paid: {what_for(entry)}"
    if entry.kind in PAYMENTS:
        cost = share(entry, known[entry.account])
    return [
        str(entry.sequence),
        when(entry.time),
        entry.account,
        str(facts.get("by", "")),
        what,
        cost,
    ]
