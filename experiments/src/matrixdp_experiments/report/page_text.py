"""Parts of a page's tables: markers, lines of a table, accuracies over seeds."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Protocol

from matrixdp.errors import FileFormatError
from matrixdp.rounding import shown_up

__all__ = [
    "Judged",
    "accuracies",
    "between_markers",
    "markdown_table",
    "readable",
    "shown_accuracy",
    "shown_mean",
]


class Judged(Protocol):
    """A row of any table of results."""

    @property
    def accuracy(self) -> str:
        """A share as text; empty if there is none."""

    @property
    def note(self) -> str:
        """Why there is none."""


def between_markers(page: str, name: str, text: str) -> str:
    """Return a page with a text between the markers of that name, which stay.

    Everything outside of the markers is written by hand and stays as well.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise FileFormatError(f"the page has no lines {begin} and {end}: put them back")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column is text, and whose others are numbers."""
    rule = ["---", *(["---:"] * (len(head) - 1))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))


def accuracies(rows: Iterable[Judged]) -> list[float]:
    """Return the accuracies of rows that have one, in per cent."""
    return [100.0 * float(row.accuracy) for row in rows if row.accuracy]


def shown_accuracy(rows: Sequence[Judged]) -> str:
    """Return the mean over seeds, and the least and the largest in brackets."""
    mean, found = shown_mean(rows), accuracies(rows)
    return mean if len(found) < 2 else f"{mean} ({min(found):.1f}–{max(found):.1f})"


def shown_mean(rows: Sequence[Judged]) -> str:
    """Return the mean over seeds, or why there is none."""
    found = accuracies(rows)
    if not found:
        return "does not apply" if any("does not apply" in row.note for row in rows) else "–"
    return f"{fmean(found):.1f}"


def readable(number: str) -> str:
    """Return three digits, rounded up, without an exponent up to a million.

    Examples
    --------
    >>> readable("17931.2"), readable("0.110415")
    ('18,000', '0.111')
    """
    shown = shown_up(float(number), 3)
    return f"{float(shown):,.0f}" if 1e3 <= float(shown) < 1e6 else shown
