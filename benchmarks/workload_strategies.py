"""Optimal strategies against jax-privacy's dense factorisation and HDMM, run and as published.

Run with ``make benchmark-workloads``. jax-privacy and matrixdp optimise the mean squared error of
prefix sums under one participation, in float64, in one run; the error of either is evaluated by the
same dense formula. Times are the least of three calls, so that neither compilation on the first
call nor other work on the machine counts; only ratios mean anything. Ours includes the proof of its
lower bound.

HDMM (McKenna, Miklau, Hay and Machanavajjhala, PVLDB 2018 and its journal version) is not a
package. Its default optimiser for Gaussian noise is run where it can be imported, which takes three
minutes or so; ``hdmm_peer`` says how. Both have one BLAS thread, times go from the workload to the
strategy, and 1,024 cells are timed once, 64 cells sixteen times. The error of its strategy is
evaluated by our formulas, and must be what HDMM says it is.

Its published errors for Gaussian noise are root mean squared errors per query at unit noise. One
attribute: the table ``experiments/journal/oned.csv`` of its repository dpcomp-org/hdmm at commit
08c1ba4 (columns Identity, YuanConvex, which is another of its optimisers and not the default, and
SVDB). Five attributes, all ranges on each: the column OPT_X_rangeRMSE of
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
from hdmm_peer import HDMM_COMMIT, default_strategy, is_importable
from rich.console import Console
from rich.table import Table
from saved import save
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.rounding import shown_up
from matrixdp.workloads import (
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    Workload,
    optimal_strategy,
    svd_bound,
)
from matrixdp.workloads.strategies.plain import identity_error

SIZES = (32, 64, 128, 256)
HDMM_SIZES = (64, 128, 256, 512, 1024)
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


def timed(work: Callable[[], Any], calls: int = 3) -> tuple[Any, float]:
    """Return a result and the least time that it took in several calls."""
    least = math.inf
    for _ in range(calls):
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


def expected_rmse(workload: Workload, measurements: np.ndarray[Any, Any]) -> float:
    """Return the root mean squared error per query of measurements, each with unit noise."""
    strategy = ProductStrategy([measurements])
    strategy.check_supports(workload)
    total = strategy.squared_error(workload)
    return strategy.sensitivity("add-remove") * math.sqrt(total / workload.rows)


def against_hdmm_default(figures: dict[str, float]) -> Table:
    """Measure both on prefixes and ranges, each with one BLAS thread."""
    title = f"HDMM's default under Gaussian noise, at {HDMM_COMMIT}, and matrixdp: one BLAS thread"
    headings = ("workload", "cells", "HDMM", "ours", "HDMM above ours", "proven within", "HDMM, s")
    table = table_of(title, (*headings, "ours, s", "times as fast"))
    if not is_importable():
        table.caption = "HDMM cannot be imported: benchmarks/hdmm_peer.py says how to get it"
        return table
    for name, kind in (("prefixes", Prefix), ("ranges", Ranges)):
        for size in HDMM_SIZES:
            workload = kind(size)
            calls = max(HDMM_SIZES) // size  # a minute for the largest, milliseconds for the least
            search = partial(optimal_strategy, workload, neighbouring="add-remove")
            with threadpool_limits(limits=1):
                best, ours = timed(search, calls)
                found, theirs = timed(partial(default_strategy, workload), calls)
            error = expected_rmse(workload, found.measurements)
            _check_same(error, math.sqrt(found.squared_error / workload.rows))
            bound = math.sqrt(best.certificate.lower_bound / workload.rows)
            excess, unproven = _excess(error, best.rmse), _excess(best.rmse, bound)
            within = f"{shown_up(unproven, 2)} %"
            errors = (f"{error:.8f}", f"{best.rmse:.8f}", f"{excess:.1e} %", within)
            times = (f"{theirs:.3g}", f"{ours:.3g}", f"{theirs / ours:.1f}")
            table.add_row(name, str(size), *errors, *times)
            key = f"HDMM's default at {HDMM_COMMIT}, {name}, {size}"
            figures |= {
                f"{key}, excess in %": excess,
                f"{key}, ours proven within, %": unproven,
                f"{key}, its seconds": theirs,
                f"{key}, our seconds": ours,
                f"{key}, times as fast": theirs / ours,
            }
    return table


def against_published(figures: dict[str, float]) -> Table:
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
    console = Console(width=120)
    figures: dict[str, float] = {}
    console.print(against_published(figures))
    console.print(against_hdmm_default(figures))
    console.print(against_jax_privacy(figures))
    save("workload_strategies", figures)


def _excess(theirs: float, ours: float) -> float:
    return 100.0 * (theirs / ours - 1.0)


def _check_same(ours: float, theirs: float) -> None:
    if not abs(ours / theirs - 1.0) < 1e-7:
        raise SystemExit(f"{ours!r} and HDMM's {theirs!r} are not of one definition")


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
