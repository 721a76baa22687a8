"""The tables of the page on experiments, made from the table of results and nothing else."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.accounts import MECHANISMS
from matrixdp_experiments.gradients.settings import PAPER_DATASETS, SETTINGS
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.page_text import (
    between_markers,
    markdown_table,
    readable,
    shown_accuracy,
)

__all__ = ["FIGURE", "MARKER", "page_tables", "with_tables"]

MARKER = "type-one"
"""The page's tables stand between markers of this name; ``report`` writes them."""

FIGURE = "![Test accuracy against epsilon](figures/type_one.svg)"


def with_tables(page: str, rows: Sequence[Row]) -> str:
    """Return a page with the tables of these rows between its markers."""
    return between_markers(page, MARKER, page_tables(rows))


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

    def line(name: str, show: Callable[[Sequence[Row]], str]) -> list[str]:
        return [MECHANISMS[name].title, *(show(_cell(rows, name, one)) for one in epsilons)]

    return [
        f"### {setting.title}, {setting.model}\n",
        f"Test accuracy in per cent. Without noise: {shown_accuracy(plain)}.\n",
        markdown_table(head, [line(name, shown_accuracy) for name in noisy]),
        "Noise multiplier, and in brackets the true epsilon at δ = 1e-5:\n",
        markdown_table(head, [line(name, _shown_noise) for name in noisy]),
    ]


def _cell(rows: Iterable[Row], mechanism: str, epsilon: str) -> list[Row]:
    return [row for row in rows if (row.mechanism, row.epsilon) == (mechanism, epsilon)]


def _shown_noise(rows: Sequence[Row]) -> str:
    """Return the multiplier, of MVG the least and the largest, and in brackets the true epsilon."""
    if not rows:
        return "–"  # an epsilon off the grid, at which other mechanisms were run
    if not rows[0].noise_multiplier:
        return "does not apply"
    row = rows[0]  # the noise does not depend on the seed
    least, largest = readable(row.noise_multiplier), readable(row.largest_multiplier)
    multiplier = least if least == largest else f"{least}–{largest}"
    true = shown_up(float(row.true_epsilon), 2) if row.true_epsilon else "–"
    return f"{multiplier} ({true})"
