"""Speed of `privacy_mu` against dp_accounting's get_sigma_gaussian, in one run.

Run with ``make benchmark``. Times are medians of interleaved rounds; only their ratios mean
anything. The points are random in epsilon 1e-3..100 and delta 1e-15..1e-2, where both libraries
work; the largest relative difference of their answers is printed as a check that both did.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from dp_accounting import get_sigma_gaussian
from saved import save

from matrixdp import privacy_mu

ROUNDS = 7
SCALAR_POINTS = 100
ARRAY_POINTS = 100_000


def seconds(work: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Print the ratios; fail if one is below what the project promises."""
    rng = np.random.default_rng(0)
    epsilons = 10.0 ** rng.uniform(-3, 2, ARRAY_POINTS)
    deltas = 10.0 ** rng.uniform(-15, -2, ARRAY_POINTS)
    pairs = list(zip(epsilons[:SCALAR_POINTS].tolist(), deltas.tolist(), strict=False))

    theirs = np.array([get_sigma_gaussian(*pair) for pair in pairs])
    ours = 1.0 / np.array([privacy_mu(*pair) for pair in pairs])
    print(f"largest relative difference of the answers: {np.max(abs(theirs / ours - 1)):.1e}")

    peer, scalar, array = [], [], []
    for _ in range(ROUNDS):
        peer.append(seconds(lambda: [get_sigma_gaussian(*pair) for pair in pairs]) / len(pairs))
        scalar.append(seconds(lambda: [privacy_mu(*pair) for pair in pairs]) / len(pairs))
        array.append(seconds(lambda: privacy_mu(epsilons, deltas)) / ARRAY_POINTS)
    by_scalar = statistics.median(p / s for p, s in zip(peer, scalar, strict=True))
    by_array = statistics.median(p / a for p, a in zip(peer, array, strict=True))
    print(f"one scalar call:     {by_scalar:7.0f} times as fast (promised: 20)")
    print(f"per point of arrays: {by_array:7.0f} times as fast (promised: 150)")
    save("calibration_speed", {"scalar call": by_scalar, "per array point": by_array})
    return 0 if by_scalar >= 20 and by_array >= 150 else 1


if __name__ == "__main__":
    sys.exit(main())
