"""Speed of exact noise against numpy's unsafe generator and OpenDP, side by side.

Every figure is the median of interleaved rounds of one run: value in, noisy value out, one thread
unless said. Run it by ``make benchmark-noise``, which also installs OpenDP; it fails if a figure
falls short of what it must reach, or is missing.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

import numpy as np
from rich.console import Console
from rich.table import Table
from saved import save

from matrixdp.noise import ExactNoise, NoiseContext, ReleaseKey
from matrixdp.noise.kernels import available_kernels

SCALE = 3.7
GRID_EXPONENT = -19
ROUNDS_OF_SHAPE = {(4096, 512): 61, (8192, 8192): 9}
MUST_REACH = {
    **{("numba", shape): 2.0 for shape in ROUNDS_OF_SHAPE},
    **{("numpy", shape): 0.75 for shape in ROUNDS_OF_SHAPE},
    # The smaller matrix takes 8 milliseconds, of which the start of a thread is a part.
    ("numba, two threads", (8192, 8192)): 1.6,
}
OPENDP = "OpenDP make_gaussian"
OPENDP_MUST_REACH = 1000
Work = Callable[[], object]


def seconds(work: Work) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Return the median time of each, the rounds interleaved after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            elapsed = seconds(work)
            if number:
                times[name].append(elapsed)
    return {name: statistics.median(found) for name, found in times.items()}


def bound(shape: tuple[int, int], kernel: str) -> ExactNoise:
    """Return fresh noise for a matrix of this shape, by one of the kernels."""
    context = NoiseContext.describe(shape=shape, dtype="float64", scale=SCALE)
    stream = ReleaseKey.generate().bind(context)
    return ExactNoise(stream, SCALE, make_kernel=available_kernels()[kernel])


def size_of(shape: tuple[int, int]) -> str:
    """Return how a shape is written."""
    return f"{shape[0]} x {shape[1]}"


def shortfalls(figures: dict[str, float]) -> list[str]:
    """Return what is wrong with the figures that have something to reach, one line each."""
    least = {f"{name}, {size_of(shape)}": bound for (name, shape), bound in MUST_REACH.items()} | {
        OPENDP: OPENDP_MUST_REACH
    }
    return [
        f"{name}: {figures[name]:.2f}, must reach {bound:g}"
        if name in figures
        else f"{name}: missing, must reach {bound:g}"
        for name, bound in least.items()
        if name not in figures or not figures[name] >= bound
    ]


def add_rows(table: Table, shape: tuple[int, int], figures: dict[str, float]) -> None:
    """Measure one shape: numpy's generator, both kernels, in place, two threads."""
    generator = np.random.default_rng()
    value = np.full(shape, 1.5)
    out, own = np.zeros(shape), np.full(shape, 1.5)
    works: dict[str, Work] = {"standard_normal": lambda: generator.standard_normal(out=out)}
    for kernel in available_kernels():
        noise = bound(shape, kernel)
        works[kernel] = partial(noise.add, value, out=out)
        works[f"{kernel}, in place"] = partial(noise.add, own, out=own)
        works[f"{kernel}, two threads"] = partial(noise.add, value, out=out, threads=2)
    medians = interleaved(works, ROUNDS_OF_SHAPE[shape])
    size = size_of(shape)
    for name, elapsed in medians.items():
        kernel = name.split(",")[0]
        threaded = name.endswith("two threads")
        against = medians[kernel] if threaded else medians["standard_normal"]
        figures[f"{name}, {size}"] = against / elapsed
        table.add_row(
            size,
            name,
            f"{elapsed / value.size * 1e9:.2f}",
            f"{against / elapsed:.2f}" + (" times one" if threaded else ""),
            f"{MUST_REACH[name, shape]:g}" if (name, shape) in MUST_REACH else "",
        )


def add_opendp(table: Table, figures: dict[str, float]) -> None:
    """Measure OpenDP on the same grid, if it is installed."""
    try:
        dp = import_module("opendp.prelude")  # a peer, in an environment of its own
    except ImportError:
        table.add_row("", OPENDP, "not installed", "", f"{OPENDP_MUST_REACH}: make benchmark-noise")
        return
    dp.enable_features("contrib")
    size = 20_000
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=size)
    metric = dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(domain, metric, scale=SCALE, k=GRID_EXPONENT)
    values = [1.5] * size
    noise = bound((4096, 512), next(iter(available_kernels())))
    whole, out = np.full((4096, 512), 1.5), np.zeros((4096, 512))
    medians = interleaved(
        {"opendp": lambda: measurement(values), "ours": lambda: noise.add(whole, out=out)}, 9
    )
    per_element = medians["opendp"] / size
    ours = medians["ours"] / whole.size
    ratio = per_element / ours
    figures[OPENDP] = ratio
    table.add_row(f"1 x {size}", OPENDP, f"{per_element * 1e9:.0f}", "", "")
    row = ("ours over OpenDP", f"{ours * 1e9:.2f}", f"{ratio:.0f}", f"{OPENDP_MUST_REACH}")
    table.add_row("", *row)


def main() -> None:
    """Measure and print."""
    table = Table(title="Exact Gaussian noise, medians of interleaved rounds")
    for heading in ("matrix", "what", "ns per element", "times as fast", "must reach"):
        table.add_column(heading, justify="right" if heading[0] in "nt" else "left")
    figures: dict[str, float] = {}
    for shape in ROUNDS_OF_SHAPE:
        add_rows(table, shape, figures)
    add_opendp(table, figures)
    Console(width=100).print(table)
    save("noise_speed", figures)
    wrong = shortfalls(figures)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
