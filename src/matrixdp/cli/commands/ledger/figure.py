"""The figure of ``matrixdp ledger history``: how much of each budget was spent over time."""

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction

from matrixdp.cli.shared.figures import empty_figure, figure_content
from matrixdp.ledger import Balance, Entry
from matrixdp.ledger.explanation import PAYMENTS

__all__ = ["drawn_history"]


def drawn_history(entries: Sequence[Entry], accounts: Sequence[Balance], file_format: str) -> bytes:
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
