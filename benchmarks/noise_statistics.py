"""A thousand million samples of exact noise against the normal distribution.

Moments, chi-square, Kolmogorov-Smirnov, tails past 4 sigma: see ``tests/reference/normality.py``.
Every run uses a fresh key, so a p-value below 1e-3 or so is worth a second run, and one below 1e-9
worth an issue. Run it by ``make noise-statistics``.
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


def main(samples: int) -> None:
    """Draw, count, print."""
    rows = samples // CHUNK
    context = NoiseContext.describe(shape=(rows, CHUNK), dtype="float64", scale=1.0)
    noise = ExactNoise(ReleaseKey.generate().bind(context), 1.0)
    found = Normality()
    zeros, out = np.zeros((1, CHUNK)), np.empty((1, CHUNK))
    for row in track(range(rows), "Drawing", console=Console(stderr=True)):
        noise.add_tile(zeros, (row, 0), out=out)
        found.add(out.ravel())
    table = Table("test", "p-value", title=f"{found.size} samples")
    for name, p_value in found.p_values().items():
        table.add_row(name, f"{p_value:.3g}")
    Console().print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SAMPLES)
