"""Optimal strategies for prefixes against jax-privacy's dense matrix factorisation, in one run.

Run with ``make benchmark-workloads``. Both optimise the mean squared error of prefix sums under one
participation, in float64; the error of either is evaluated by the same dense formula. Times are of
one call each, the second of two for jax-privacy, whose first compiles; only ratios mean anything.
Ours also proves its lower bound within its time.

HDMM is not measured: it is no package, and its published tables are for Laplace noise, where the
optimum is another one.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from matrixdp.workloads import Prefix, optimal_strategy

SIZES = (32, 64, 128, 256)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and how long it took."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def rmse(strategy: np.ndarray[Any, Any]) -> float:
    """Return the root mean squared error of prefixes at unit noise."""
    size = len(strategy)
    response = np.linalg.solve(strategy.T, np.tril(np.ones((size, size))).T)
    norm = float(np.linalg.norm(strategy, axis=0).max())
    return norm * float(np.linalg.norm(response)) / math.sqrt(size)


def main() -> None:
    """Measure and print."""
    peer = _peer()
    console = Console(width=100)
    table = Table(title="Prefix sums: jax-privacy's dense factorisation and matrixdp")
    for heading in ("cells", "their r.m.s. error", "ours", "proven bound", "gap", "times as fast"):
        table.add_column(heading, justify="right")
    for size in SIZES:
        best, ours = timed(partial(optimal_strategy, Prefix(size), neighbouring="add-remove"))
        found = best.certificate
        row = [str(size), "not installed", f"{best.rmse:.8f}"]
        row += [f"{math.sqrt(found.lower_bound / size):.8f}", f"{found.gap:.1e}", ""]
        if peer is not None:
            peer(size)
            strategy, theirs = timed(partial(peer, size))
            row[1], row[5] = f"{rmse(np.asarray(strategy)):.8f}", f"{theirs / ours:.1f}"
        table.add_row(*row)
    console.print(table)


def _peer() -> Callable[[int], Any] | None:
    try:
        jax = import_module("jax")  # a peer, in an environment of its own
        dense = import_module("jax_privacy.matrix_factorization.dense")
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)  # noqa: FBT003
    return lambda size: jax.block_until_ready(dense.optimize(size))


if __name__ == "__main__":
    main()
