"""A billion samples of exact noise against the normal distribution.

Moments, chi-square, Kolmogorov-Smirnov, tails past 4 sigma: see ``tests/reference/normality.py``.
Every run uses a fresh key, so a p-value below 1e-3 or so is worth a second run. One below 1e-9 is
worth an issue, and makes the run fail. Run it by ``make noise-statistics``.
"""

import sys

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from matrixdp.noise import ExactNoise, NoiseContext, ReleaseKey
from reference.normality import Normality

CHUNK = 1_000_000
SAMPLES = 1_000_000_000
LEAST_P_VALUE = 1e-9


def main(samples: int) -> None:
    """Draw, count, print; fail if the samples are not normal."""
    rows = samples // CHUNK
    context = NoiseContext.describe(shape=(rows, CHUNK), dtype="float64", scale=1.0)
    noise = ExactNoise(ReleaseKey.generate().bind(context), 1.0)
    found = Normality()
    zeros, out = np.zeros((1, CHUNK)), np.empty((1, CHUNK))
    for row in track(range(rows), "Drawing", console=Console(stderr=True)):
        noise.add_tile(zeros, (row, 0), out=out)
        found.add(out.ravel())
    p_values = found.p_values()
    table = Table("test", "p-value", title=f"{found.size} samples")
    for name, p_value in p_values.items():
        table.add_row(name, f"{p_value:.3g}")
    Console().print(table)
    odd = [name for name, p_value in p_values.items() if not p_value >= LEAST_P_VALUE]
    if odd:
        raise SystemExit(f"not normal, p-value below {LEAST_P_VALUE:g}: {', '.join(odd)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES)
