"""Time of exact queries on Dask against plain Dask, in one run.

Plain Dask adds up floats, so that its answers depend on chunks and have no proven sensitivity.
Queries clip every row, one in ten here, round it to integers and add up exactly. Only ratios of
interleaved rounds mean anything. Both use the threaded scheduler with two workers.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import zarr
from saved import save
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.queries import Bins, Categories, ContingencyTable, Gram, PublicBounds, Sum

ROUNDS = 7
COLUMNS = 256
CHUNK = 50_000
# What the project promises, in multiples of plain Dask.
PROMISED = {
    "sum of rows": 3.0,
    "Gram, of float64": 1.5,
    "Gram, of float32": 3.0,
    "Gram from zarr, of float32": 1.9,
    "contingency table": 1.3,
}


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(query: Callable[[], object], plain: Callable[[], object]) -> float:
    """Return the median ratio of two calls in turn."""
    query(), plain()
    return statistics.median(seconds(query) / seconds(plain) for _ in range(ROUNDS))


def of_numbers(rows: int, folder: Path) -> dict[str, float]:
    """Return the ratios of sums and Gram matrices."""
    numbers = np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)
    norms = np.linalg.norm(numbers[:10_000], axis=1)
    bounds = PublicBounds(COLUMNS, norm=float(np.quantile(norms, 0.9)))
    gram, total = Gram(bounds, "add-remove"), Sum(bounds, "add-remove")
    stored = zarr.create_array(
        folder / "x.zarr", shape=numbers.shape, chunks=(CHUNK // 4, COLUMNS), dtype="f4"
    )
    stored[:] = numbers
    from_zarr = da.from_zarr(folder / "x.zarr", chunks=(CHUNK, COLUMNS))
    single = da.from_array(numbers, chunks=(CHUNK, COLUMNS))
    double = da.from_array(numbers.astype(np.float64), chunks=(CHUNK, COLUMNS))

    def plain_gram(data: da.Array) -> Callable[[], object]:
        return (data.T @ data).compute  # type: ignore[no-any-return]

    return {
        "sum of rows": ratio(lambda: total.evaluate(single), lambda: single.sum(axis=0).compute()),
        "Gram, of float64": ratio(lambda: gram.evaluate(single), plain_gram(double)),
        "Gram, of float32": ratio(lambda: gram.evaluate(single), plain_gram(single)),
        "Gram from zarr, of float32": ratio(
            lambda: gram.evaluate(from_zarr), plain_gram(from_zarr)
        ),
    }


def of_a_table(rows: int, folder: Path) -> float:
    """Return the ratio of a contingency table of partitioned Parquet."""
    rng = np.random.default_rng(0)
    names = [f"state {number}" for number in range(50)]
    frame = pd.DataFrame(
        {
            "state": np.array(names)[rng.integers(0, 50, rows)],
            "age": rng.integers(0, 100, rows),
            "income": rng.normal(size=rows),
        }
    )
    parts = 16
    dd.from_pandas(frame, npartitions=parts).to_parquet(folder / "table")
    edges = [0, 18, 40, 65, 100]
    table = ContingencyTable([Categories("state", names), Bins("age", edges)], "add-remove")

    def plain() -> object:
        data = dd.read_parquet(folder / "table", columns=["state", "age"])
        cut = data.assign(age=data["age"].map_partitions(pd.cut, edges, right=False))
        return cut.groupby(["state", "age"], observed=False).size().compute()

    return ratio(lambda: table.evaluate(dd.read_parquet(folder / "table")), plain)


def main() -> int:
    """Print the ratios; fail if one is above what the project promises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--save", action="store_true")
    rows = parser.parse_args().rows
    # One BLAS thread for each of the two workers: waiting threads cost more than the work.
    with (
        tempfile.TemporaryDirectory() as folder,
        threadpool_limits(1),
        dask.config.set(scheduler="threads", num_workers=2),
    ):
        figures = of_numbers(rows, Path(folder))
        figures["contingency table"] = of_a_table(1_000_000, Path(folder))
    for name, figure in figures.items():
        print(f"{name}: {figure:.2f} times plain Dask; promised {PROMISED[name]}")
    save("dask_queries", {"rows": rows, **figures})
    return 0 if all(figures[name] <= most for name, most in PROMISED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
