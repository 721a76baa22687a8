"""Speed of releases on Dask against plain Dask, side by side on two workers of this machine.

Plain Dask adds noise of its own generator, which is neither keyed nor safe in floating point, and
writes the same kind of folder: not compressed. Every figure is a ratio of medians of interleaved
rounds in one run. ``--large`` also sends 8 GB through workers of 1 GiB. Run it by ``make
benchmark-dask``; it fails if a ratio falls short of what it must reach.
"""

import hashlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import zarr
from distributed import Client, LocalCluster, wait
from noise_speed import interleaved
from rich.console import Console
from rich.table import Table
from saved import save

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.distributed import release_lazily, release_to
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise.keys.value_tag import ValueTag

MECHANISM = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5))
SCALE = MECHANISM.covariance.smallest_singular_value
SHAPE, CHUNKS = (24_576, 4096), (4096, 4096)  # 0.8 GB, chunks of 134 MB
ROUNDS = 7
NARROW = 128
LARGE_SHAPE = (245_760, 4096)  # 8 GB
LARGE_CHUNKS = (2048, 4096)  # 67 MB: a worker holds a chunk, its noisy copy and what is next
AT_MOST = {"zarr to zarr": 1.1, "memory, sum": 0.6}
AT_LEAST = {f"GB/s a core: noise of {NARROW} columns": 0.5}
SCALED = ("plain, memory, sum", "memory, sum")
Work = Callable[[], object]


def fresh(folder: Path) -> Path:
    """Return the name of a folder that is not there, or not any more."""
    path = folder / "out.zarr"
    shutil.rmtree(path, ignore_errors=True)
    path.with_name("out.zarr.json").unlink(missing_ok=True)
    return path


def with_plain_noise(array: da.Array) -> da.Array:
    """Return an array with Dask's own noise."""
    generator = da.random.default_rng()
    noisy: da.Array = array + generator.normal(0.0, SCALE, size=array.shape, chunks=array.chunks)
    return noisy


def plain_to_zarr(array: da.Array, folder: Path) -> None:
    """Write an array with Dask's own noise."""
    target = zarr.create_array(
        fresh(folder), shape=array.shape, chunks=CHUNKS, dtype="f8", compressors=None
    )
    da.to_zarr(with_plain_noise(array), target)


def released(array: da.Array, folder: Path, *, check: bool) -> None:
    """Release an array into a folder."""
    release_to(MECHANISM, fresh(folder), array, check=check)


def plain_sum(array: da.Array) -> None:
    """Add up an array with Dask's own noise."""
    with_plain_noise(array).sum().compute()


def released_sum(array: da.Array, *, check: bool) -> None:
    """Release an array that is computed when it is needed, and add it up."""
    release_lazily(MECHANISM, array, check=check).value.sum().compute()


def works_on(client: Client, folder: Path) -> dict[str, Work]:
    """Return what is compared: by its name, with and without a pass before the payment."""
    stored = da.from_zarr(str(folder / "in.zarr"))
    kept = client.persist(stored)
    wait(kept)
    return {
        "plain, zarr to zarr": partial(plain_to_zarr, stored, folder),
        "zarr to zarr": partial(released, stored, folder, check=False),
        "zarr to zarr, checked before": partial(released, stored, folder, check=True),
        "plain, memory to zarr": partial(plain_to_zarr, kept, folder),
        "memory to zarr": partial(released, kept, folder, check=False),
        "plain, memory, sum": partial(plain_sum, kept),
        "memory, sum": partial(released_sum, kept, check=False),
        "memory, sum, checked before": partial(released_sum, kept, check=True),
    }


def on_workers(folder: Path, workers: int, only: Sequence[str] = ()) -> dict[str, float]:
    """Return the median times on so many workers."""
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        works = works_on(client, folder)
        return interleaved({n: w for n, w in works.items() if n in only or not only}, ROUNDS)


def rate(work: Work, size: int) -> float:
    """Return the gigabytes a second of one core, by its own time: others may use the machine."""
    times = []
    for _ in range(7):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return size / statistics.median(times) / 1e9


def rates() -> dict[str, float]:
    """Return what one core does with a chunk, step by step."""
    noise = BlockNoise(MECHANISM.proof, (1 << 16, 1 << 14), "float64")
    narrow, chunk = np.full((1 << 15, NARROW), 1.5), np.full((2048, 4096), 1.5)
    noisy = noise.noisy(chunk, (0, 4096), bytes(32))
    tag = partial(ValueTag, bytes(32), noise.context, b"")
    works: dict[str, tuple[Work, int]] = {
        f"noise of {NARROW} columns": (
            lambda: noise.noisy(narrow, (7, 300), bytes(32)),
            narrow.nbytes,
        ),
        "noise of 4096 columns": (lambda: noise.noisy(chunk, (0, 4096), bytes(32)), chunk.nbytes),
        "check and code": (
            lambda: tag().update(noise.check(chunk, (0, 4096))).digest(),
            chunk.nbytes,
        ),
        "digest": (lambda: hashlib.sha256(noisy.data).digest(), chunk.nbytes),
        "proof": (lambda: can_be_released(noisy, MECHANISM.covariance), chunk.nbytes),
    }
    return {f"GB/s a core: {name}": rate(*each) for name, each in works.items()}


def large(folder: Path) -> dict[str, float]:
    """Send 8 GB through two workers of 1 GiB each."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="1GiB", dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        array = da.random.default_rng(1).normal(size=LARGE_SHAPE, chunks=LARGE_CHUNKS)
        start = time.perf_counter()
        released(array, folder, check=False)
        elapsed = time.perf_counter() - start
    return {"seconds for 8 GB through 1 GiB": elapsed}


def ratios(times: dict[int, dict[str, float]]) -> dict[str, float]:
    """Return what is compared, from the times on one worker and on two."""
    two = times[2]
    figures = {
        name: elapsed / two[f"plain, {name.removesuffix(', checked before')}"]
        for name, elapsed in two.items()
        if not name.startswith("plain")
    }
    for name, elapsed in times[1].items():
        figures[f"{name}: one worker over two"] = elapsed / two[name]
    return figures


def shortfalls(figures: dict[str, float]) -> list[str]:
    """Return which figures do not reach what they must."""
    most = [f"{n}: {figures[n]:.2f}, at most {b}" for n, b in AT_MOST.items() if figures[n] > b]
    least = [f"{n}: {figures[n]:.2f}, at least {b}" for n, b in AT_LEAST.items() if figures[n] < b]
    return most + least


def main() -> None:
    """Measure and print."""
    dask.config.set({"distributed.logging.distributed": "error"})
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        value = zarr.create_array(
            folder / "in.zarr", shape=SHAPE, chunks=CHUNKS, dtype="f8", compressors=None
        )
        random = np.random.default_rng(0)
        for row in range(0, SHAPE[0], CHUNKS[0]):
            value[row : row + CHUNKS[0]] = random.normal(size=CHUNKS)
        times = {1: on_workers(folder, 1, only=SCALED), 2: on_workers(folder, 2)}
        figures = ratios(times)
        figures |= rates()
        figures |= {f"seconds, {what}, two workers": s for what, s in times[2].items()}
        if "--large" in sys.argv[1:]:
            figures |= large(folder)
    table = Table(title=f"{SHAPE[0] * SHAPE[1] * 8 / 1e9:.1f} GB, two workers, against plain Dask")
    table.add_column("what")
    table.add_column("figure", justify="right")
    table.add_column("must", justify="right")
    for what, figure in figures.items():
        must = f"≤ {AT_MOST[what]}" if what in AT_MOST else ""
        must += f"≥ {AT_LEAST[what]}" if what in AT_LEAST else ""
        table.add_row(what, f"{figure:.2f}", must)
    Console(width=100).print(table)
    save("dask_release", figures)
    wrong = shortfalls(figures)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
