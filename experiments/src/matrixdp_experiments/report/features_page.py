"""The pages of released features: a summary within the page on experiments, and all tables.

Claimed and true epsilon are side by side.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from matrixdp.rounding import shown_up
from matrixdp_experiments.released_features.accounts import MECHANISMS
from matrixdp_experiments.released_features.cells import METHODS
from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS, PAPER_DATASETS
from matrixdp_experiments.report.features_table import FeatureRow
from matrixdp_experiments.report.page_text import (
    between_markers,
    markdown_table,
    readable,
    shown_accuracy,
    shown_mean,
)

__all__ = ["features_page", "with_features_summary"]

_HEADER = """\
# Tables of Type II

Every result of the [experiments](../experiments.md) with released features, made from
`results/type_two.csv`. A cell is the mean over seeds, with the least and the largest in brackets.
The noise multiplier is the scale of the noise over C; for `moments` it is that of the diagonal.
Multipliers and true ε are rounded up.
"""
_PAPER = """\
Protocol `paper`, the network's head on the rows; features are covered, and labels are in clear. **A
claim is false** where the true epsilon at δ = 1e-5, behind each accuracy, is larger.
"""
_EXACT = """\
Protocol `exact`, the network's head on the rows; features are covered, and labels are in clear:
"""
_BEYOND = """\
Protocol `exact`, IMGM, clip rule `public`: what else can be done with the same budget. Only private
moments cover labels, too, and they are central: the owner adds up all records.
"""
Show = Callable[[Sequence[FeatureRow]], str]
Line = tuple[str, list[FeatureRow]]

_USUAL = {"network": "public", "protocol": "exact", "clip": "public", "mechanism": "imgm"}
# Lines of the summary: what is shown, and where it differs from the usual cell.
_SUMMARY = (
    ("public part alone", {"mechanism": "public", "method": "rows", "epsilon": ""}),
    ("rows without noise", {"mechanism": "none", "method": "rows", "epsilon": ""}),
    *((title, {"method": name, "epsilon": "1"}) for name, title in METHODS.items()),
    ("random network, moments", {"network": "random", "method": "moments", "epsilon": "1"}),
    ("protocol `paper`, rows", {"protocol": "paper", "method": "rows", "epsilon": "1"}),
)


def with_features_summary(page: str, rows: Sequence[FeatureRow]) -> str:
    """Return a page with the summary of these rows between its markers."""
    return between_markers(page, "type-two", _summary(rows))


def _summary(rows: Sequence[FeatureRow]) -> str:
    """Return accuracies at a claim of 1, and the true epsilon where it is another."""
    datasets = list(dict.fromkeys(row.dataset for row in rows if row.accuracy))

    def shown(dataset: str, wanted: dict[str, str]) -> str:
        of = {"dataset": dataset} | _USUAL | wanted
        found = [row for row in rows if all(getattr(row, key) == of[key] for key in of)]
        false = [_true(row) for row in found if row.true_epsilon and _true(row) != row.epsilon]
        return f"{shown_mean(found)} ({false[0]})" if false else shown_mean(found)

    return markdown_table(
        ["accuracy (true ε)", *(FEATURE_SETTINGS[one].title for one in datasets)],
        [[title, *(shown(one, wanted) for one in datasets)] for title, wanted in _SUMMARY],
    )


def features_page(rows: Sequence[FeatureRow]) -> str:
    """Return the tables of each data set, one protocol after the other, and what was not run."""
    parts = [_HEADER]
    for dataset, group in groupby(rows, key=lambda row: row.dataset):
        parts += _dataset_tables(dataset, list(group))
    found = {row.dataset for row in rows if row.accuracy}
    missing = [FEATURE_SETTINGS[name].title for name in PAPER_DATASETS if name not in found]
    # What could not be run is listed, too: a missing table alone would not be noticed.
    if missing:
        parts.append(f"Not run: {', '.join(missing)}.\n")
    return "\n".join(parts)


def _dataset_tables(dataset: str, rows: list[FeatureRow]) -> list[str]:
    setting = FEATURE_SETTINGS[dataset]
    exact, paper = ([row for row in rows if row.protocol == one] for one in ("exact", "paper"))
    noisy, by_rows = (
        [row for row in exact if row.epsilon],
        [row for row in exact if row.epsilon and row.method == "rows"],
    )
    return [
        f"## {setting.title}, {setting.features:,} features of {setting.model}\n",
        f"Test accuracy in per cent. {_without_noise(exact)}\n",
        _EXACT,
        _epsilon_table(_grouped(by_rows, _by_mechanism), shown_accuracy),
        _BEYOND,
        _epsilon_table(_grouped(_at_its_best(noisy), _by_method), shown_accuracy),
        "Protocol `exact`: noise multiplier, and in brackets the true epsilon at δ = 1e-5.\n",
        _epsilon_table(_grouped(noisy, _by_noise), _shown_noise),
        _PAPER,
        _epsilon_table(_grouped(paper, _by_mechanism), _shown_with_true_epsilon, "claimed ε = "),
    ]


def _without_noise(rows: Sequence[FeatureRow]) -> str:
    """Return the sentences on rows that have no epsilon."""
    plain = [row for row in rows if row.mechanism == "none"]
    public = [row for row in rows if row.mechanism == "public"]
    parts = [
        f"{label} {shown_accuracy(group)}" for label, group in _grouped(plain, _by_mechanism_rule)
    ]
    return (
        f"Without noise: {'; '.join(parts)}. The network that was trained on the public part "
        f"alone: {shown_accuracy(public)}."
    )


def _at_its_best(rows: Iterable[FeatureRow]) -> list[FeatureRow]:
    return [row for row in rows if (row.clip, row.mechanism) == ("public", "imgm")]


def _by_mechanism(row: FeatureRow) -> str:
    return f"{row.network} network, clip {row.clip}, {MECHANISMS[row.mechanism]}"


def _by_mechanism_rule(row: FeatureRow) -> str:
    head = "linear head" if row.method == "linear" else "network's head"
    return f"{row.network} network, clip {row.clip}, {head}"


def _by_method(row: FeatureRow) -> str:
    return f"{row.network} network, {_method_title(row.method)}"


def _by_noise(row: FeatureRow) -> str:
    released = "moments" if row.method == "moments" else "rows"
    return f"{released}, {MECHANISMS[row.mechanism]}"


def _method_title(method: str) -> str:
    return next(title for name, title in METHODS.items() if name == method)


def _grouped(rows: Iterable[FeatureRow], label: Callable[[FeatureRow], str]) -> list[Line]:
    """Return rows by their labels, in the order in which labels come first."""
    lines: dict[str, list[FeatureRow]] = {}
    for row in rows:
        lines.setdefault(label(row), []).append(row)
    return list(lines.items())


def _epsilon_table(lines: Sequence[Line], show: Show, claim: str = "ε = ") -> str:
    epsilons = sorted({row.epsilon for _, rows in lines for row in rows}, key=float)
    head = ["", *(f"{claim}{epsilon}" for epsilon in epsilons)]
    return markdown_table(
        head,
        [
            [label, *(show([row for row in rows if row.epsilon == one]) for one in epsilons)]
            for label, rows in lines
        ],
    )


def _shown_noise(rows: Sequence[FeatureRow]) -> str:
    if not rows or not rows[0].noise_multiplier:
        return "does not apply"
    row = rows[0]  # the noise depends neither on the seed nor on the network
    least, largest = readable(row.noise_multiplier), readable(row.largest_multiplier)
    multiplier = least if least == largest else f"{least}–{largest}"
    return f"{multiplier} ({_true(row)})"


def _shown_with_true_epsilon(rows: Sequence[FeatureRow]) -> str:
    accuracy = shown_accuracy(rows)
    if not rows or not rows[0].true_epsilon:
        return accuracy
    return f"{accuracy} at true ε {_true(rows[0])}"


def _true(row: FeatureRow) -> str:
    return shown_up(float(row.true_epsilon), 3)
