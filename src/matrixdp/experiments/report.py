"""The tables of the page on experiments, made from the table of results and nothing else."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import fmean

from matrixdp.errors import FileFormatError
from matrixdp.experiments.accounts import MECHANISMS
from matrixdp.experiments.results_table import Row
from matrixdp.experiments.settings import PAPER_DATASETS, SETTINGS
from matrixdp.rounding import shown_up

__all__ = ["BEGIN", "END", "FIGURE", "accuracies", "page_tables", "with_tables"]

BEGIN, END = "<!-- type-one: begin -->", "<!-- type-one: end -->"
"""Between these the page's tables stand; ``matrixdp experiment report`` writes them."""

FIGURE = "![Test accuracy against epsilon](figures/type_one.svg)"


def with_tables(page: str, rows: Sequence[Row]) -> str:
    """Return a page with the tables of these rows between its markers."""
    # Everything outside of the markers is written by hand and stays.
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise FileFormatError(f"the page has no lines {BEGIN} and {END}: put them back")
    return f"{before}{BEGIN}\n\n{page_tables(rows)}\n{END}{after}"


def page_tables(rows: Sequence[Row]) -> str:
    """Return two tables for each data set, of accuracies and of noise, and what was not run."""
    parts = [f"{FIGURE}\n"] if any(row.accuracy for row in rows) else []
    for dataset, group in groupby(rows, key=lambda row: row.dataset):
        parts += _dataset_tables(dataset, list(group))
    # What could not be run is listed, too: a missing table alone would not be noticed.
    found = {row.dataset for row in rows if row.accuracy}
    missing = [SETTINGS[name].title for name in PAPER_DATASETS if name not in found]
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _dataset_tables(dataset: str, rows: list[Row]) -> list[str]:
    setting = SETTINGS[dataset]
    epsilons = sorted({row.epsilon for row in rows if row.epsilon}, key=float)
    head = ["mechanism, rule", *(f"ε = {epsilon}" for epsilon in epsilons)]
    names = [name for name in MECHANISMS if any(row.mechanism == name for row in rows)]
    plain = [row for row in rows if row.mechanism == "none"]
    noisy = [name for name in names if name != "none"]

    def line(name: str, show: "type[_Accuracy | _Noise]") -> list[str]:
        return [MECHANISMS[name].title, *(show.of(_cell(rows, name, one)) for one in epsilons)]

    return [
        f"### {setting.title}, {setting.model}\n",
        f"Test accuracy in per cent. Without noise: {_Accuracy.of(plain)}.\n",
        _table(head, [line(name, _Accuracy) for name in noisy]),
        "Noise multiplier, and in brackets the true epsilon at δ = 1e-5:\n",
        _table(head, [line(name, _Noise) for name in noisy]),
    ]


def _cell(rows: Iterable[Row], mechanism: str, epsilon: str) -> list[Row]:
    return [row for row in rows if (row.mechanism, row.epsilon) == (mechanism, epsilon)]


def accuracies(rows: Iterable[Row]) -> list[float]:
    """Return the accuracies of rows that have one, in per cent."""
    return [100.0 * float(row.accuracy) for row in rows if row.accuracy]


class _Accuracy:
    """The mean over seeds, and the least and the largest in brackets."""

    @staticmethod
    def of(rows: Sequence[Row]) -> str:
        found = accuracies(rows)
        if not found:
            return "does not apply" if any("does not apply" in row.note for row in rows) else "–"
        mean = f"{fmean(found):.1f}"
        return mean if len(found) == 1 else f"{mean} ({min(found):.1f}–{max(found):.1f})"


class _Noise:
    """The multiplier, of MVG the least and the largest, and the true epsilon in brackets."""

    @staticmethod
    def of(rows: Sequence[Row]) -> str:
        if not rows or not rows[0].noise_multiplier:
            return "does not apply"
        row = rows[0]  # the noise does not depend on the seed
        least, largest = _readable(row.noise_multiplier), _readable(row.largest_multiplier)
        multiplier = least if least == largest else f"{least}–{largest}"
        true = shown_up(float(row.true_epsilon), 2) if row.true_epsilon else "–"
        return f"{multiplier} ({true})"


def _readable(multiplier: str) -> str:
    """Return three digits, rounded up, without an exponent up to a million."""
    shown = shown_up(float(multiplier), 3)
    return f"{float(shown):,.0f}" if 1e3 <= float(shown) < 1e6 else shown


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---", *(["---:"] * (len(head) - 1))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *lines))
