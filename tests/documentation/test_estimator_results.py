"""The page on estimators and real data shows the saved tables, and what was to be reached."""

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "estimators_on_data.md"
EPSILONS = ("0.1", "1", "10")
TASKS = ("mnist", "adult", "adult_age", "diabetes", "adult_numbers", "mnist_components")
Row = dict[str, str]


def rows_of(task: str) -> list[Row]:
    """Return the saved rows, without their provenance."""
    with (ROOT / "results" / f"estimators_{task}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    provenance = {row["method"]: row["relation"] for row in rows[:2]}
    assert set(provenance) == {"commit", "processor"}
    assert not provenance["commit"].endswith("dirty")
    return rows[2:]


def figure(text: str) -> str:
    """Return a saved number as the page shows it: accuracies with one digit, shares with three.

    What is worse than -1 says no more than that.
    """
    number = float(text)
    if number < -1.0:
        return "below -1"
    return f"{number:.1f}" if number > 1.0 else f"{number:.3f}"


def shown(row: Row) -> str:
    """Return a cell: the mean, then the least and the largest score, then what went wrong."""
    if not row["mean"]:
        return row["note"]
    cell = figure(row["mean"])
    if int(row["runs"]) > 1:
        cell += f" ({figure(row['least'])} to {figure(row['largest'])})"
    return f"{cell}, {row['note']}" if row["note"] and row["epsilon"] else cell


def lines_of(task: str) -> list[str]:
    """Return the lines of a table: a method and relation each, with a column for each epsilon."""
    rows = rows_of(task)
    lines = []
    for method, relation in dict.fromkeys((row["method"], row["relation"]) for row in rows):
        cells = {
            row["epsilon"]: shown(row)
            for row in rows
            if (row["method"], row["relation"]) == (method, relation)
        }
        found = (cells.get(epsilon, "") for epsilon in (*EPSILONS, ""))
        lines.append(f"| {' | '.join((method, relation, *found))} |")
    return lines


@pytest.mark.parametrize("task", TASKS)
def test_the_page_shows_what_was_saved(task: str) -> None:
    page = PAGE.read_text().splitlines()
    missing = [line for line in lines_of(task) if line not in page]
    assert not missing


def mean(task: str, method: str, epsilon: str) -> float:
    """Return the saved mean under replacing one record."""
    (row,) = [
        row
        for row in rows_of(task)
        if (row["method"], row["relation"], row["epsilon"]) == (method, "replace", epsilon)
    ]
    return float(row["mean"])


def test_what_was_to_be_reached_on_mnist() -> None:
    found = {
        epsilon: mean("mnist", "matrixdp logistic regression", epsilon) for epsilon in EPSILONS
    }
    assert found["1"] >= 97.0
    assert found["0.1"] >= 93.5
    sentence = (
        f"classify {found['1']:.1f} % of MNIST's test images correctly at epsilon 1 and "
        f"{found['0.1']:.1f} % at epsilon 0.1"
    )
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def test_the_commonest_class_of_adult() -> None:
    commonest = 76.38  # per cent of the test records
    assert f"The commonest class has {commonest:.1f}" in " ".join(PAGE.read_text().split())
    assert mean("adult", "matrixdp logistic regression", "0.1") > commonest
