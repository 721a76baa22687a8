"""Speed of `release`, as a user calls it, against the unsafe generators of numpy and PyTorch.

A release checks a matrix, draws exact noise and states what is guaranteed. Its peers only draw: for
10 x 10 numbers ``x + rng.normal(...)``, for large matrices numpy's ``standard_normal`` and
PyTorch's ``randn``, which return a new array as a release does. Every figure is a ratio of medians
of interleaved rounds of one run.
"""

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from noise_speed import interleaved
from rich.console import Console
from rich.table import Table
from saved import save

import matrixdp as mdp
from matrixdp.noise.application.threads import usable_cores

SMALL, LARGE = (10, 10), (4096, 512)
SMALL_CALLS, SMALL_ROUNDS, LARGE_ROUNDS = 20, 501, 101
TIMES_AS_LONG = "10 x 10, times as long as x + rng.normal"
WITH_MECHANISM = "10 x 10, IMGM(...).release, times as long as x + rng.normal"
ONE_THREAD = "4096 x 512, one thread, times as fast as standard_normal"
ALL_THREADS = "4096 x 512, all processors, times as fast as standard_normal"
SINGLE = "float32, 4096 x 512, {} threads, times as fast as randn"
MOST = {TIMES_AS_LONG: 10.0, WITH_MECHANISM: 20.0}
LEAST = {ONE_THREAD: 2.1, ALL_THREADS: 3.3, SINGLE.format(1): 1.0, SINGLE.format(2): 1.0}
Work = Callable[[], object]


def mechanism() -> mdp.IMGM:
    """Return what releases: independent noise on a Frobenius ball."""
    ball = mdp.FrobeniusBall(1.0, neighbouring="add-remove")
    return mdp.IMGM(sensitivity=ball, budget=mdp.Budget(epsilon=1.0, delta=1e-5))


def repeated(work: Work) -> Work:
    """Return several calls as one, so that they take longer than reading the clock."""

    def works() -> None:
        for _ in range(SMALL_CALLS):
            work()

    return works


def small_matrix(imgm: mdp.IMGM, generator: np.random.Generator) -> dict[str, float]:
    """Return the ratio for a matrix so small that only what surrounds the noise takes time."""
    matrix = generator.standard_normal(SMALL)
    scale = float(imgm.release(matrix).standard_errors()[0, 0])
    works = {
        "plain": repeated(lambda: matrix + generator.normal(0.0, scale, SMALL)),
        TIMES_AS_LONG: repeated(partial(imgm.release, matrix)),
        WITH_MECHANISM: repeated(
            lambda: mdp.IMGM(imgm.sensitivity, imgm.budget).release(matrix),
        ),
    }
    found = interleaved(works, SMALL_ROUNDS)
    plain = found.pop("plain")
    return {name: seconds / plain for name, seconds in found.items()}


def large_matrix(imgm: mdp.IMGM, generator: np.random.Generator) -> dict[str, float]:
    """Return the ratios for float64."""
    matrix = generator.standard_normal(LARGE)
    works: dict[str, Work] = {
        "plain": partial(generator.standard_normal, LARGE),
        ONE_THREAD: partial(imgm.release, matrix, threads=1),
        ALL_THREADS: partial(imgm.release, matrix),
    }
    found = interleaved(works, LARGE_ROUNDS)
    plain = found.pop("plain")
    return {name: plain / seconds for name, seconds in found.items()}


def single_precision(imgm: mdp.IMGM, generator: np.random.Generator) -> dict[str, float]:
    """Return the ratios for float32, both sides with as many threads."""
    matrix = generator.standard_normal(LARGE).astype(np.float32)
    ratios = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        works: dict[str, Work] = {
            "plain": partial(torch.randn, LARGE),
            "release": partial(imgm.release, matrix, threads=threads),
        }
        found = interleaved(works, LARGE_ROUNDS)
        ratios[SINGLE.format(threads)] = found["plain"] / found["release"]
    return ratios


def main() -> int:
    """Measure and print; fail if a figure falls short."""
    imgm, generator = mechanism(), np.random.default_rng()
    figures = {"processors": float(usable_cores())}
    for measure in (small_matrix, large_matrix, single_precision):
        figures |= measure(imgm, generator)
    table = Table("what", "ratio", "must", title="release, medians of interleaved rounds")
    for name, figure in figures.items():
        must = f"at most {MOST[name]:g}" if name in MOST else f"at least {LEAST.get(name, 1):g}"
        table.add_row(name, f"{figure:.2f}", must)
    Console(width=100).print(table)
    save("release_speed", figures)
    short = [name for name, most in MOST.items() if not figures[name] <= most]
    short += [name for name, least in LEAST.items() if not figures[name] >= least]
    print("\n".join(f"falls short: {name}" for name in short))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
