"""Confidence bounds of answers: as often right as they say, and neither more nor less."""

import numpy as np
import pytest
from scipy import stats

from matrixdp import Budget, InvalidParameterError, MatrixMechanism, ReleaseKey
from matrixdp.workloads import Identity, Prefix, Product, Total, Workload

BUDGET = Budget(1.0, 1e-5)
RELEASES = 400


def covered(workload: Workload, histogram: list[int], confidence: float, stretch: float) -> int:
    """Return in how many of the releases all true answers are within stretched bounds."""
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring="add-remove")
    bits, truth, count = np.random.default_rng(5), workload.apply(histogram), 0
    for _ in range(RELEASES):
        release = mechanism.release(histogram, key=ReleaseKey.from_bytes(bits.bytes(32)))
        bounds = release.confidence_bounds(confidence)
        middle, half = (bounds.lower + bounds.upper) / 2, (bounds.upper - bounds.lower) / 2
        count += bool(np.all(np.abs(truth - middle) <= stretch * half))
    return count


def p_value(count: int, confidence: float) -> float:
    return float(stats.binomtest(count, RELEASES, confidence).pvalue)


@pytest.mark.parametrize(
    ("workload", "histogram"),
    [(Total(3), [4, 0, 7]), (Identity(6), [5, 1, 0, 3, 2, 8])],
    ids=["one query", "independent queries"],
)
def test_bounds_hold_as_often_as_they_say(workload: Workload, histogram: list[int]) -> None:
    # Exactly so for independent answers, where Sidak's inequality is an equation.
    assert p_value(covered(workload, histogram, 0.8, 1.0), 0.8) > 1e-3
    for wrong in (0.8, 1.25):
        assert p_value(covered(workload, histogram, 0.8, wrong), 0.8) < 1e-4


def test_bounds_of_correlated_answers_hold_at_least_as_often() -> None:
    workload = Product([Prefix(4), Identity(2)])
    count = covered(workload, [1, 2, 3, 4, 5, 6, 7, 8], 0.8, 1.0)
    assert count >= stats.binom.ppf(1e-4, RELEASES, 0.8)


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_bad_confidence(confidence: float) -> None:
    release = MatrixMechanism(Total(2), BUDGET, neighbouring="add-remove").release([1, 2])
    with pytest.raises(InvalidParameterError, match="confidence="):
        release.confidence_bounds(confidence)
