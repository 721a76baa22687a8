"""The pages on estimators and real data show the saved tables, and what was to be reached."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "estimators_on_data.md"
TABLES = ROOT / "docs" / "tables" / "estimators.md"
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
def test_the_tables_show_what_was_saved(task: str) -> None:
    tables = TABLES.read_text().splitlines()
    missing = [line for line in lines_of(task) if line not in tables]
    assert not missing


SUMMARY = {
    "mnist": ("MNIST, accuracy in per cent", "logistic"),
    "adult": ("Adult, income, accuracy in per cent", "logistic"),
    "adult_age": ("Adult, age, R²", ""),
    "diabetes": ("diabetes, 300 records, one column, R²", ""),
    "adult_numbers": ("two components of six columns, share of variance", ""),
    "mnist_components": ("five components of 49 pixels, share of variance", ""),
}


@pytest.mark.parametrize("task", TASKS)
def test_the_summary_shows_what_was_saved(task: str) -> None:
    title, method = SUMMARY[task]
    at = {"matrixdp": "1", "diffprivlib": "1", "opendp": "1", "scikit": ""}
    cells = [summary_cell(task, f"{library}.*{method}", at[library]) for library in at]
    assert f"| {' | '.join((title, *cells))} |" in PAGE.read_text()
    # The figure is made from the same tables.
    drawn = (ROOT / "docs" / "figures" / "estimators.svg").read_text()
    assert title.split(", ")[0] in drawn


def summary_cell(task: str, pattern: str, epsilon: str) -> str:
    """Return the mean of a method under replacing one record, why there is none, or a dash."""
    for row in rows_of(task):
        known = row["relation"] in {"replace", ""} and row["epsilon"] == epsilon
        if known and re.match(pattern, row["method"]):
            return figure(row["mean"]) if row["mean"] else row["note"]
    return "–"


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


def test_the_commonest_class_of_adult() -> None:
    commonest = 76.38  # per cent of the test records
    page = " ".join(PAGE.read_text().split())
    assert f"The most frequent class has {commonest:.1f} on Adult" in page
    mnist, adult = (
        mean(task, "matrixdp logistic regression", "0.1") for task in ("mnist", "adult")
    )
    assert f"At epsilon 0.1 matrixdp has {mnist:.1f} on MNIST and {adult:.1f} on Adult" in page
    assert adult > commonest
