"""Marginals: how long the best measurements take to find, and a release of fourteen attributes.

Run with ``make benchmark-marginals``. Selection is timed against one pass over all cells, by numpy
in the same run: the least that a method which touches each cell could do. The whole path, from
records to answers and their standard errors, is timed against counting the same tables with numpy
and adding nothing. Errors are those that the mechanism states and those that a release has.
"""

import math
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table
from saved import save

import matrixdp as mdp
from matrixdp.workloads import marginals, optimal_strategy

T = TypeVar("T")
RELATIONS: tuple[Literal["add-remove", "replace"], ...] = ("add-remove", "replace")
# The attributes of Adult, with the numbers of cells in the experiments of Xiao et al. (2023).
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)
RECORDS = 50_000
BUDGET = mdp.Budget(epsilon=1.0, delta=1e-6)


def timed(
    work: Callable[..., T], *arguments: object, repetitions: int = 1, **options: object
) -> tuple[T, float]:
    """Return what some work returns, and the shortest time it takes, in seconds."""
    took = math.inf
    for _ in range(repetitions):
        start = time.perf_counter()
        found = work(*arguments, **options)
        took = min(took, time.perf_counter() - start)
    return found, took


def counted(records: np.ndarray, kept: Sequence[int]) -> np.ndarray:
    """Return the counts of one table, as numpy counts them."""
    sizes = [ADULT[index] for index in kept]
    cells = np.ravel_multi_index(tuple(records[:, index] for index in kept), sizes)
    return np.bincount(cells, minlength=math.prod(sizes))


def selection() -> dict[str, float]:
    """Return milliseconds and passes over the cells for all tables of three of seven attributes."""
    figures: dict[str, float] = {}
    workload = marginals([10] * 7, combinations(range(7), 3))
    cells = np.ones(workload.cells)
    _, once = timed(cells.sum, repetitions=5)
    for relation in RELATIONS:
        found, took = timed(optimal_strategy, workload, repetitions=5, neighbouring=relation)
        figures[f"selection, 10^7 cells, {relation}, ms"] = took * 1e3
        figures[f"selection, 10^7 cells, {relation}, passes over the cells"] = took / once
        figures[f"selection, 10^7 cells, {relation}, gap"] = found.certificate.gap
    return figures


def release() -> dict[str, float]:
    """Return the times and errors of all tables of three of the attributes of Adult."""
    figures: dict[str, float] = {}
    groups = list(combinations(range(len(ADULT)), 3))
    workload = marginals(ADULT, groups)
    figures["fourteen attributes, log2 of the cells"] = math.log2(workload.cells)
    figures["fourteen attributes, answers"] = workload.rows
    rng = np.random.default_rng(0)
    # Skewed, as real attributes are: cell c has a share in proportion to 1 / (c + 1).
    records = np.stack([(size ** rng.random(RECORDS) - 1e-9).astype(int) - 1 for size in ADULT], 1)
    tables, counting = timed(lambda: [counted(records, kept) for kept in groups], repetitions=3)
    truth = np.concatenate(tables)
    # The first release of a process compiles the noise, which has nothing to do with tables.
    mdp.IMGM(mdp.FrobeniusBall(1.0, neighbouring="replace"), BUDGET).release(np.zeros((2, 1)))
    for relation in RELATIONS:
        parts = {}
        mechanism, parts["selection"] = timed(
            mdp.MatrixMechanism, workload, BUDGET, neighbouring=relation
        )
        made, parts["release"] = timed(mechanism.release_records, records)
        answers, parts["answers"] = timed(getattr, made, "answers")
        errors, parts["standard errors"] = timed(made.standard_errors)
        for part, took in parts.items():
            figures[f"fourteen attributes, {relation}, {part}, s"] = took
        whole = sum(parts.values())
        figures[f"fourteen attributes, {relation}, whole path over counting"] = whole / counting
        figures[f"fourteen attributes, {relation}, stated rmse"] = mechanism.expected_error
        off = answers - truth
        figures[f"fourteen attributes, {relation}, rmse"] = math.sqrt(float(np.mean(off**2)))
        whitened = math.sqrt(float(np.mean(np.square(off / errors))))
        figures[f"fourteen attributes, {relation}, error over standard error"] = whitened
    figures["fourteen attributes, counting alone, s"] = counting
    return figures


def errors_by_order() -> dict[str, float]:
    """Return the error at mu = 1 of all tables of up to so many attributes of Adult."""
    figures = {}
    for name, orders in (("1", [1]), ("2", [2]), ("3", [3]), ("0 to 3", range(4))):
        kept = [group for many in orders for group in combinations(range(len(ADULT)), many)]
        found = optimal_strategy(marginals(ADULT, kept), neighbouring="add-remove")
        figures[f"Adult, tables of {name} attributes, rmse at mu = 1"] = found.rmse
    return figures


def main() -> None:
    """Measure, print and keep."""
    figures = selection() | release() | errors_by_order()
    table = Table("what", "figure", title="Marginals")
    for what, figure in figures.items():
        table.add_row(what, f"{figure:.4g}")
    Console(width=100).print(table)
    save("marginals", figures)


if __name__ == "__main__":
    main()
