"""Time of a Gram matrix with exact sensitivity against plain ``X.T @ X``, in one run.

The query clips every row, rounds it to integers and adds up their products exactly; numpy does
neither. Rows are float32, and one in ten is outside the norm bound. Only ratios of interleaved
rounds mean anything. By default 200,000 rows; ``--rows 1000000`` is the size that is promised.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from saved import save
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.queries import Gram, PublicBounds

ROUNDS = 5
COLUMNS = 256
PROMISED = 3.5


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Print the ratio; fail if it is above what the project promises."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--save", action="store_true")
    rows = parser.parse_args().rows
    rng = np.random.default_rng(0)
    data = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    norms = np.linalg.norm(data, axis=1)
    query = Gram(PublicBounds(COLUMNS, norm=float(np.quantile(norms, 0.9))), "add-remove")
    # The float64 products alone, on a quarter of the rows: what no exact sum can avoid.
    quarter = data[: rows // 4].astype(np.float64)
    ratios, products = [], []
    # One thread for both: waiting BLAS threads on shared cores cost more than the work.
    with threadpool_limits(1):
        for _ in range(ROUNDS):
            plain = seconds(lambda: data.T @ data)
            ratios.append(seconds(lambda: query.evaluate(data)) / plain)
            products.append(4 * seconds(lambda: quarter.T @ quarter) / plain)
    ratio = statistics.median(ratios)
    print(f"Gram of {rows:,} x {COLUMNS} float32 against X.T @ X: {ratio:.2f} times as long")
    print(f"float64 products alone: {statistics.median(products):.2f} times as long")
    save("query_speed", {"rows": rows, "Gram": ratio})
    return 0 if ratio <= PROMISED else 1


if __name__ == "__main__":
    sys.exit(main())
