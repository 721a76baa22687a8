"""Time of a certified optimum, in eigendecompositions of a matrix of that size.

Run with ``make benchmark-sizes``. The peer is LAPACK: one decomposition, by the same library in the
same run, is the least that any method based on a spectrum could do. The time includes the proof of
the lower bound. Seconds are printed as well; only the ratios are kept.
"""

import time
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table
from saved import save
from scipy import linalg

from matrixdp.workloads import Dense, Prefix, Ranges, optimal_strategy

RELATIONS: tuple[Literal["add-remove", "replace"], ...] = ("add-remove", "replace")
SIZES = (1024, 4096)


def badly_scaled(size: int) -> Dense:
    """Return random queries whose rows are spread over four powers of ten."""
    spread = 10.0 ** np.random.default_rng(1).uniform(-2.0, 2.0, (size, 1))
    return Dense(np.random.default_rng(0).standard_normal((size, size)) * spread)


def decomposition(size: int) -> float:
    """Return how many seconds one eigendecomposition takes."""
    matrix = Ranges(size).gram()
    start = time.perf_counter()
    linalg.eigh(matrix, driver="evd")
    return time.perf_counter() - start


def main() -> None:
    """Measure, print and keep."""
    console = Console(width=100)
    figures: dict[str, float] = {}
    units = {size: decomposition(size) for size in SIZES}
    table = Table("workload", "relation", "gap", "seconds", "decompositions", title="Optima")
    for workload in (Prefix(1024), Ranges(1024), badly_scaled(1024), Prefix(4096)):
        for relation in RELATIONS:
            start = time.perf_counter()
            found = optimal_strategy(workload, neighbouring=relation).certificate
            took = time.perf_counter() - start
            ratio = took / units[workload.cells]
            figures[f"{workload!r}, {relation}, gap"] = found.gap
            figures[f"{workload!r}, {relation}, decompositions"] = ratio
            row = (f"{found.gap:.1e}", f"{took:.1f}", f"{ratio:.1f}")
            table.add_row(repr(workload), relation, *row)
            console.print(f"{workload!r}, {relation}: {row[1]} s", style="dim")
    console.print(table)
    save("workload_sizes", figures)


if __name__ == "__main__":
    main()
