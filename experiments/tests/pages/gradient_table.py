"""The table of Type I: its data sets and rules, and what its cells hold."""

from itertools import product
from pathlib import Path
from statistics import fmean

from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.report.gradients_table import Row
from matrixdp_experiments.report.page_text import accuracies
from matrixdp_experiments.report.tables import read_table

__all__ = [
    "AMPLIFIED",
    "DATASETS",
    "EPSILONS",
    "EVERYWHERE",
    "IDLE",
    "IGNORING",
    "REPEATED",
    "ROWS",
    "SUBSAMPLED",
    "cell",
    "commonest",
    "learned",
    "loss",
    "mean",
    "multiplier",
    "ratio",
    "ratios",
    "shown",
    "true",
]

_PATH = Path(__file__).resolve().parents[3] / "results" / "type_one.csv"
ROWS = read_table(_PATH, Row)
REPEATED = ("mnist", "adult", "cora")  # data sets whose cells were run with three seeds
EPSILONS = ("0.01", "0.1", "0.5", "1")
DATASETS = (*REPEATED, "cifar10", "svhn")
EVERYWHERE = list(product(DATASETS, EPSILONS))
SUBSAMPLED = ("imgm-pld", "rdp", "moments")
AMPLIFIED = ("analytic-amplified", "classic-amplified")
IGNORING = ("imgm-theorem-3", "analytic", "classic", "mvg")  # these do not credit sampling
# Cells of CIFAR-10 whose models have learned nothing: their differences mean nothing.
IDLE = [
    *product(["cifar10"], IGNORING, EPSILONS),
    *product(["cifar10"], (*SUBSAMPLED, *AMPLIFIED), EPSILONS[:1]),
]


def cell(dataset: str, mechanism: str, epsilon: str = "") -> list[Row]:
    """Return the rows of a cell, one for each seed."""
    wanted = (dataset, mechanism, epsilon)
    return [row for row in ROWS if (row.dataset, row.mechanism, row.epsilon) == wanted]


def mean(dataset: str, mechanism: str, epsilon: str = "") -> float:
    """Return the mean accuracy of a cell in per cent."""
    return fmean(accuracies(cell(dataset, mechanism, epsilon)))


def shown(dataset: str, mechanism: str, epsilon: str = "") -> str:
    """Return the mean accuracy of a cell as the page shows it."""
    return f"{mean(dataset, mechanism, epsilon):.1f}"


def multiplier(dataset: str, mechanism: str, epsilon: str) -> float:
    """Return the least noise multiplier of a cell."""
    return float(cell(dataset, mechanism, epsilon)[0].noise_multiplier)


def ratio(of: str, to: str, dataset: str, epsilon: str) -> float:
    """Return how many times the noise of one rule another one needs."""
    return multiplier(dataset, of, epsilon) / multiplier(dataset, to, epsilon)


def ratios(of: str, to: str) -> list[float]:
    """Return these for all data sets and epsilons."""
    return [ratio(of, to, *where) for where in EVERYWHERE]


def true(dataset: str, mechanism: str, epsilon: str) -> str:
    """Return the true epsilon of a cell as the page shows it."""
    return shown_up(float(cell(dataset, mechanism, epsilon)[0].true_epsilon), 2)


def learned(*rules: str) -> list[tuple[str, str]]:
    """Where at least one of some rules has learned something."""
    return [
        (name, epsilon)
        for name, epsilon in EVERYWHERE
        if any((name, rule, epsilon) not in IDLE for rule in rules)
    ]


def loss(worse: str, dataset: str, epsilon: str, better: str = "imgm-pld") -> float:
    """Return how many points one rule is below another one."""
    return mean(dataset, better, epsilon) - mean(dataset, worse, epsilon)


def commonest(dataset: str) -> str:
    """Return the accuracy of a constant answer as the page shows it."""
    return f"{100 * SETTINGS[dataset].commonest_class:.1f}"
