"""Chances of an attacker: bounds that the best attack reaches and none exceeds."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, privacy_delta
from matrixdp.report.learning import best_guess, best_guess_of_promise, power

NORMAL = NormalDist()


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.27, 1.0, 5.0])
def test_the_best_guess_is_reached_and_not_exceeded(mu: float) -> None:
    # The likelihood ratio test of N(0, 1) against N(mu, 1) has its threshold at mu / 2.
    reached = (NORMAL.cdf(mu / 2) + (1 - NORMAL.cdf(-mu / 2))) / 2
    assert reached <= best_guess(mu) <= reached * (1 + 1e-11)
    # The same from the privacy curve: 1/2 + half the total variation, which is delta at 0.
    assert best_guess(mu) == pytest.approx(0.5 + privacy_delta(mu, 0.0) / 2, rel=1e-11)
    threshold = NORMAL.inv_cdf(0.99)
    assert power(mu, 0.01) == pytest.approx(1 - NORMAL.cdf(threshold - mu), rel=1e-9)


def test_an_attack_on_releases_does_as_well_and_no_better() -> None:
    # Neighbours through the mechanism itself: every entry is a release of one number, 0 or 1.
    mechanism = IMGM(FrobeniusBall(1.0, "replace"), Budget.from_mu(1.0, 1e-5))
    numbers = np.zeros((40_000, 1))
    without, with_it = (np.asarray(mechanism.release(numbers + one)) for one in (0.0, 1.0))
    deviation = 0.5 / math.sqrt(without.size + with_it.size)
    right = (np.mean(without < 0.5) + np.mean(with_it > 0.5)) / 2
    assert abs(right - best_guess(1.0)) < 6 * deviation
    found = np.mean(with_it > np.quantile(without, 0.99))
    assert abs(found - power(1.0, 0.01)) < 0.03
    # Half of the noise would let the attack do better than is claimed.
    better = (np.mean(without / 2 < 0.5) + np.mean((with_it + 1) / 2 > 0.5)) / 2
    assert better > best_guess(1.0) + 20 * deviation


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0, 800.0])
def test_a_promise_allows_at_most(epsilon: float) -> None:
    delta = 1e-5
    allowed = best_guess_of_promise(epsilon, delta)
    assert 0.5 < allowed <= 1.0
    # Randomised response, which reveals the record with probability delta, reaches it.
    truth = delta + (1 - delta) / (1 + math.exp(-epsilon))
    assert allowed == pytest.approx(truth, rel=1e-11)
    # Gaussian noise within the promise allows less.
    if epsilon < 100.0:
        assert best_guess(Budget(epsilon, delta).mu) <= allowed
