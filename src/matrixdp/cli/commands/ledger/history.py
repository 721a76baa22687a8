"""``matrixdp ledger history`` and ``explain``: what happened, as a table, a figure, and words."""

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Annotated

import typer

from matrixdp.cli.shared.ledgers import (
    KeysOption,
    LedgerOption,
    OptionalAccountOption,
    opened_ledger,
)
from matrixdp.cli.shared.options import AsJson, Figure, Force, count_option
from matrixdp.cli.shared.output import (
    check_file,
    empty_figure,
    figure_content,
    file_format,
    print_json,
    print_table,
)
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
        write_all([(figure, _drawn(entries, shown, file_format(figure)))], force=force)
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


def _drawn(entries: Sequence[Entry], accounts: Sequence[Balance], file_format: str) -> bytes:
    """Draw the share of each account's budget that was spent, from its opening on."""
    # Late, because matplotlib takes a second to load.
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

    canvas, axes = empty_figure(8.0, 4.5)
    for account in accounts:
        times, shares = _spent(entries, account)
        (line,) = axes.step(times, shares, where="post", label=account.name)
        axes.plot(times[1:-1], shares[1:-1], "o", markersize=3, color=line.get_color())
        if account.limit.delta:
            times, shares = _spent(entries, account, delta=True)
            axes.step(
                *(times, shares),
                where="post",
                linestyle=":",
                color=line.get_color(),
                label=f"{account.name}: delta for claims",
            )
    axes.axhline(100.0, color="#808080", linewidth=1.0, linestyle="--")
    axes.set_ylim(0.0, 105.0)
    axes.set_ylabel("spent, % of the budget")
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("time (UTC)")
    axes.set_title("Privacy budgets over time")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
    return figure_content(canvas, file_format)


def _spent(
    entries: Sequence[Entry], account: Balance, *, delta: bool = False
) -> tuple[list[datetime], list[float]]:
    """Return when an account paid, and how much of its budget was spent then, in per cent."""
    limit = account.limit.delta if delta else account.limit.mu_squared
    spent, times, shares = Fraction(0), list[datetime](), list[float]()
    for entry in entries:
        cost = entry.facts["costs"].get(account.name) if entry.kind in PAYMENTS else None
        opened = (entry.kind, entry.account) == ("open", account.name)
        if cost is not None:
            spent += Fraction(cost[1] if delta else cost[0])
        if opened or cost is not None:
            times.append(datetime.fromisoformat(entry.time))
            shares.append(float(100 * spent / limit) if limit else 100.0)
    # Up to the last entry of all.
    return [*times, datetime.fromisoformat(entries[-1].time)], [*shares, shares[-1]]
