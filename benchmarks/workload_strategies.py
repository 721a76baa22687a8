"""Optimal strategies against jax-privacy's dense factorisation and HDMM's published errors.

Run with ``make benchmark-workloads``. jax-privacy and matrixdp optimise the mean squared error of
prefix sums under one participation, in float64, in one run; the error of either is evaluated by the
same dense formula. Times are the least of three calls, so that neither compilation on the first
call nor other work on the machine counts; only ratios mean anything. Ours includes the proof of its
lower bound.

HDMM (McKenna, Miklau, Hay and Machanavajjhala, PVLDB 2018 and its journal version) is not a
package, so its authors' published figures for Gaussian noise are used, as root mean squared errors
per query at unit noise. One attribute: the table ``experiments/journal/oned.csv`` of their
repository dpcomp-org/hdmm at commit 08c1ba4 (columns Identity, YuanConvex, their optimiser for this
noise, and SVDB). Five attributes, all ranges on each: the column OPT_X_rangeRMSE of
``hdmm/experiments/journal/scalability_kron_comparison.csv`` in cmla-psu/ResidualPlannerPlus at
commit ed3ac78, where HDMM is the baseline of ResidualPlanner+, the successor of ResidualPlanner
(Xiao, He, Zhang and Kifer, NeurIPS 2023, arXiv 2305.08175). That the definitions are the same is
checked: their figures for the identity strategy and the SVD bound must be ours.
"""

import math
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from recorded import record
from rich.console import Console
from rich.table import Table

from matrixdp.workloads import Prefix, Product, Ranges, optimal_strategy, svd_bound
from matrixdp.workloads.strategies.plain import identity_error

SIZES = (32, 64, 128, 256)
# Cells: the errors of the identity strategy and of HDMM, and the SVD bound, as published.
PUBLISHED_PREFIXES = {
    128: (8.031189202104505, 2.3120911713428396, 2.2544140344498174),
    256: (11.335784048754634, 2.528223367467486, 2.4714459649021547),
    512: (16.015617378046965, 2.7515761131831584, 2.6900647820550825),
    1024: (22.638462845343543, 3.0652911247160457, 2.9095843877394243),
    2048: (32.00781154655844, 5.001766132120014, 3.1296081568819774),
}
PUBLISHED_RANGES = {
    128: (6.582805886043833, 2.599181805478603, 2.5734725086329013),
    256: (9.273618495495704, 2.902169221655514, 2.8763585581409346),
    512: (13.089435944047908, 3.209922792933631, 3.1832074764205527),
    1024: (18.49324200890693, 3.568100282990444, 3.4923407505042805),
    2048: (26.14064523559687, 3.850227509882645, 3.802768110018751),
}
PUBLISHED_FIVE_ATTRIBUTES = {
    2: 1.726099,
    4: 3.465877,
    8: 7.468809,
    16: 16.084087,
    32: 33.207984,
    64: 64.673632,
}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the least of three times that it took."""
    least = math.inf
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        least = min(least, time.perf_counter() - start)
    return result, least


def rmse(strategy: np.ndarray[Any, Any]) -> float:
    """Return the root mean squared error of prefixes at unit noise."""
    size = len(strategy)
    response = np.linalg.solve(strategy.T, np.tril(np.ones((size, size))).T)
    norm = float(np.linalg.norm(strategy, axis=0).max())
    return norm * float(np.linalg.norm(response)) / math.sqrt(size)


def table_of(title: str, headings: tuple[str, ...]) -> Table:
    """Return an empty table of numbers."""
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def against_jax_privacy(figures: dict[str, float]) -> Table:
    """Measure both on prefixes."""
    peer = _peer()
    headings = ("cells", "their r.m.s. error", "ours", "proven bound", "gap", "times as fast")
    table = table_of("Prefix sums: jax-privacy's dense factorisation and matrixdp", headings)
    for size in SIZES:
        best, ours = timed(partial(optimal_strategy, Prefix(size), neighbouring="add-remove"))
        found = best.certificate
        row = [str(size), "not installed", f"{best.rmse:.8f}"]
        row += [f"{math.sqrt(found.lower_bound / size):.8f}", f"{found.gap:.1e}", ""]
        if peer is not None:
            strategy, theirs = timed(partial(peer, size))
            error = rmse(np.asarray(strategy))
            row[1], row[5] = f"{error:.8f}", f"{theirs / ours:.1f}"
            figures[f"jax-privacy, prefixes, {size}, excess in %"] = _excess(error, best.rmse)
            figures[f"jax-privacy, prefixes, {size}, times as fast"] = theirs / ours
        table.add_row(*row)
    return table


def against_hdmm(figures: dict[str, float]) -> Table:
    """Compare with what was published."""
    headings = ("workload", "cells", "HDMM, published", "ours", "gap", "HDMM above ours")
    table = table_of("HDMM's published errors under Gaussian noise, and matrixdp", headings)
    for name, kind, published in (
        ("prefixes", Prefix, PUBLISHED_PREFIXES),
        ("ranges", Ranges, PUBLISHED_RANGES),
    ):
        for size, (identity, theirs, bound) in published.items():
            workload = kind(size)
            own = math.sqrt(identity_error(workload, "add-remove") / workload.rows)
            _check_same(own, identity)
            _check_same(math.sqrt(svd_bound(workload) / workload.rows), bound)
            best = optimal_strategy(workload, neighbouring="add-remove")
            excess = figures[f"HDMM, {name}, {size}, excess in %"] = _excess(theirs, best.rmse)
            row = (f"{theirs:.6f}", f"{best.rmse:.6f}", f"{best.certificate.gap:.0e}")
            table.add_row(name, str(size), *row, f"{excess:.3f} %")
    for size, theirs in PUBLISHED_FIVE_ATTRIBUTES.items():
        best = optimal_strategy(Product([Ranges(size)] * 5), neighbouring="add-remove")
        excess = _excess(theirs, best.rmse)
        figures[f"HDMM, ranges on five attributes, {size}, excess in %"] = excess
        row = (f"{theirs:.6f}", f"{best.rmse:.6f}", f"{best.certificate.gap:.0e}")
        table.add_row("ranges, 5 attributes", f"{size}^5", *row, f"{excess:.3f} %")
    return table


def main() -> None:
    """Measure, print and keep."""
    console = Console(width=100)
    figures: dict[str, float] = {}
    console.print(against_hdmm(figures))
    console.print(against_jax_privacy(figures))
    record("workload_strategies", figures)


def _excess(theirs: float, ours: float) -> float:
    return 100.0 * (theirs / ours - 1.0)


def _check_same(ours: float, published: float) -> None:
    if not abs(ours / published - 1.0) < 1e-7:
        raise SystemExit(f"{ours!r} and the published {published!r} are not of one definition")


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
