"""The pages of Type I: a summary within the page on experiments, and a page of all tables."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.accounts import MECHANISMS, Family
from matrixdp_experiments.gradients.planning import Choice
from matrixdp_experiments.gradients.settings import PAPER_DATASETS, SETTINGS
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.page_text import (
    between_markers,
    markdown_table,
    readable,
    shown_accuracy,
    shown_mean,
)

__all__ = ["gradients_page", "with_gradients_summary"]

_HEADER = """\
# Tables of Type I

Every result of the [experiments](../experiments.md) with private gradients, made from
`results/type_one.csv`. A cell is the mean over seeds, with the least and the largest in brackets.
The noise multiplier is the scale of the noise on the sum over C; for MVG it depends on the layer,
and the least and the largest are shown. The true ε is what that noise guarantees, for MVG that of
its least multiplier. Multipliers and true ε are rounded up.
"""
_CHOICES = """\
## Learning rates and clip norms

What was chosen for each family of noise, with the accuracy on the records for choosing in brackets.
"""
_FAMILIES: dict[Family, str] = {
    "plain": "no noise",
    "isotropic": "independent noise",
    "mvg": "MVG",
}


def with_gradients_summary(page: str, rows: Sequence[Row]) -> str:
    """Return a page with the summary of these rows between its markers."""
    return between_markers(page, "type-one", _summary(rows))


def _summary(rows: Sequence[Row]) -> str:
    """Return accuracies at a claim of 1, and the true epsilon where it is another."""
    datasets = list(dict.fromkeys(row.dataset for row in rows if row.accuracy))

    def shown(name: str, dataset: str) -> str:
        there = [row for row in rows if row.dataset == dataset]
        found = _cell(there, name, "" if name == "none" else "1")
        wasted = [_true(row) for row in found if row.true_epsilon and _true(row) != row.epsilon]
        return f"{shown_mean(found)} ({wasted[0]})" if wasted else shown_mean(found)

    lines = [
        [MECHANISMS[name].title, *(shown(name, one) for one in datasets)] for name in MECHANISMS
    ]
    commonest = [f"{100 * SETTINGS[one].commonest_class:.1f}" for one in datasets]
    return markdown_table(
        ["accuracy (true ε)", *(SETTINGS[one].title for one in datasets)],
        [*lines, ["always the most frequent class", *commonest]],
    )


def gradients_page(rows: Sequence[Row], choices: Iterable[Choice]) -> str:
    """Return the tables of each data set, what was not run, and what was chosen."""
    parts = [_HEADER]
    for dataset, group in groupby(rows, key=lambda row: row.dataset):
        parts += _dataset_tables(dataset, list(group))
    # What could not be run is listed, too: a missing table alone would not be noticed.
    found = {row.dataset for row in rows if row.accuracy}
    missing = [SETTINGS[name].title for name in PAPER_DATASETS if name not in found]
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.\n")
    return "\n".join([*parts, _CHOICES, _choices_table(choices)])


def _choices_table(choices: Iterable[Choice]) -> str:
    found = {(one.dataset, one.family): one for one in choices}
    names = [name for name in SETTINGS if any(name == dataset for dataset, _ in found)]

    def shown(dataset: str, family: Family) -> str:
        if (dataset, family) not in found:
            return "–"
        choice = found[dataset, family]
        numbers = (choice.chosen.learning_rate, choice.chosen.clip_norm)
        values = ", ".join(f"{one:g}" for one in numbers if one is not None)
        return f"{values} ({100 * choice.accuracy:.1f})"

    return markdown_table(
        ["", *_FAMILIES.values()],
        [[SETTINGS[name].title, *(shown(name, one) for one in _FAMILIES)] for name in names],
    )


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
        f"## {setting.title}, {setting.model}\n",
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
    return f"{multiplier} ({_true(row) if row.true_epsilon else '–'})"


def _true(row: Row) -> str:
    return shown_up(float(row.true_epsilon), 2)
