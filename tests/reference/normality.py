"""Tests of normality on running counts, so that any number of samples can be judged.

Samples are numbered by the step of the 2**-20 grid they lie on; cells are unions of steps, so that
their probabilities under ``round_to_grid(z)`` are exact up to the accuracy of the normal
distribution function.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

STEPS = 2**20
CELL_STEPS = 2**12
REACH = 8
CELLS = 2 * REACH * STEPS // CELL_STEPS
EDGES = (np.arange(CELLS + 1) * CELL_STEPS - REACH * STEPS - 0.5) / STEPS
BELOW = special.ndtr(EDGES)
TAILS = (4.0, 4.5, 5.0)
LEAST_EXPECTED = 10.0


@dataclass
class Normality:
    """Counts and power sums of standardised samples."""

    size: int = 0
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(5))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(CELLS, dtype=np.int64))

    def add(self, samples: NDArray[np.float64]) -> "Normality":
        """Take in samples that should be standard normal, rounded to the grid."""
        squares = samples * samples
        self.size += samples.size
        self.sums += [
            samples.sum(),
            squares.sum(),
            float(np.dot(squares, samples)),
            float(np.dot(squares, squares)),
            float(np.dot(samples[:-1], samples[1:])),
        ]
        steps = np.rint(samples * STEPS).astype(np.int64) + REACH * STEPS
        cells = np.clip(steps // CELL_STEPS, 0, CELLS - 1)
        self.counts += np.bincount(cells, minlength=CELLS)
        return self

    def p_values(self) -> dict[str, float]:
        """Return the probability of a result at least as odd, for every test."""
        n = self.size
        mean, second, third, fourth, serial = self.sums / n
        scores = {
            "mean": mean / np.sqrt(1 / n),
            "variance": (second - 1) / np.sqrt(2 / n),
            "third moment": third / np.sqrt(15 / n),
            "fourth moment": (fourth - 3) / np.sqrt(96 / n),
            "serial correlation": serial / np.sqrt(1 / n),
        }
        found = {name: float(2 * special.ndtr(-abs(score))) for name, score in scores.items()}
        found["chi-square"] = self._chi_square()
        distance = np.abs(np.cumsum(self.counts) / n - BELOW[1:]).max()
        found["Kolmogorov-Smirnov"] = float(special.kolmogorov(np.sqrt(n) * distance))
        return found | {f"beyond {tail}": self._tail(tail) for tail in TAILS}

    def _chi_square(self) -> float:
        expected = np.diff(BELOW) * self.size
        usual = expected >= LEAST_EXPECTED
        first, last = np.flatnonzero(usual)[[0, -1]]
        groups = np.clip(np.arange(CELLS), first, last) - first
        observed = np.bincount(groups, weights=self.counts)
        wanted = np.bincount(groups, weights=expected)
        statistic = float(((observed - wanted) ** 2 / wanted).sum())
        return float(stats.chi2.sf(statistic, observed.size - 1))

    def _tail(self, tail: float) -> float:
        cell = round(tail * STEPS / CELL_STEPS)
        half = CELLS // 2
        observed = int(self.counts[half + cell :].sum() + self.counts[: half - cell].sum())
        beyond = special.ndtr(-EDGES[half + cell]) + special.ndtr(EDGES[half - cell])
        law = stats.poisson(beyond * self.size)
        return float(min(1.0, 2 * min(law.cdf(observed), law.sf(observed - 1))))

    def smallest(self) -> float:
        """Return the smallest p-value, corrected for the number of tests."""
        found = self.p_values()
        return min(1.0, len(found) * min(found.values()))
