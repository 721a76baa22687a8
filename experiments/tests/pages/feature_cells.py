"""Cells of the table of Type II by name, and how the findings write their accuracies."""

import math
from pathlib import Path
from statistics import fmean

from matrixdp_experiments.released_features.settings import FEATURE_SETTINGS
from matrixdp_experiments.report.features_table import FeatureRow
from matrixdp_experiments.report.page_text import accuracies
from matrixdp_experiments.report.tables import read_table

__all__ = [
    "CELLS",
    "CLAIMS",
    "EPSILONS",
    "FROM_ROWS",
    "ROWS",
    "above_public",
    "alone",
    "ceiling",
    "cell",
    "constant",
    "gains",
    "listed",
    "mean",
    "one_class",
    "seeds",
    "with_noise",
]

_ROOT = Path(__file__).resolve().parents[3]
ROWS = read_table(_ROOT / "results" / "type_two.csv", FeatureRow)
EPSILONS = ("0.1", "1", "5", "10")  # of the protocol `exact`
CLAIMS = ("0.01", "0.1", "0.5", "1")  # of the protocol `paper`
FROM_ROWS = ("rows", "projected", "shrunk", "linear", "corrected")
USUAL = {
    "network": "public",
    "protocol": "exact",
    "clip": "public",
    "method": "rows",
    "mechanism": "imgm",
}

CELLS: dict[tuple[str, ...], list[FeatureRow]] = {}
for each in ROWS:
    where = (each.dataset, each.epsilon, *(getattr(each, name) for name in USUAL))
    CELLS.setdefault(where, []).append(each)


def cell(dataset: str, epsilon: str = "", **wanted: str) -> list[FeatureRow]:
    return CELLS[dataset, epsilon, *(USUAL | wanted).values()]


def seeds(dataset: str, epsilon: str = "", **wanted: str) -> list[float]:
    found = accuracies(cell(dataset, epsilon, **wanted))
    assert len(found) == 3
    return found


def mean(dataset: str, epsilon: str = "", **wanted: str) -> float:
    return fmean(seeds(dataset, epsilon, **wanted))


def alone(dataset: str) -> float:
    return mean(dataset, mechanism="public")


def gains(dataset: str, epsilon: str = "", **wanted: str) -> list[float]:
    """Return by how much each seed is above what the public part alone gives with that seed."""
    found, public = seeds(dataset, epsilon, **wanted), seeds(dataset, mechanism="public")
    return [one - other for one, other in zip(found, public, strict=True)]


def above_public(dataset: str, epsilon: str = "", **wanted: str) -> float:
    return fmean(gains(dataset, epsilon, **wanted))


def with_noise(**wanted: str) -> list[tuple[str, float]]:
    """Return data set and gain over the public part of every cell with noise and these values."""
    found = []
    for (dataset, epsilon, *values), rows in CELLS.items():
        named = dict(zip(USUAL, values, strict=True))
        if epsilon and accuracies(rows) and wanted.items() <= named.items():
            found.append((dataset, above_public(dataset, epsilon, **named)))
    return found


def one_class(dataset: str, values: list[float]) -> bool:
    """Return whether every one of some accuracies is that of the most frequent class."""
    # The settings know its share to four digits.
    return all(abs(value - constant(dataset)) < 0.01 for value in values)


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def ceiling(points: float) -> str:
    return f"{math.ceil(10 * points) / 10}"


def constant(dataset: str) -> float:
    return 100 * FEATURE_SETTINGS[dataset].commonest_class
