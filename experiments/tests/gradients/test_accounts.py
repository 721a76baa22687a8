"""The noise of every mechanism and rule, against computations that share nothing with it."""

import math
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from scipy import optimize, stats

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.audit.comparison import Comparison, claimed_noise
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.workloads import Identity
from matrixdp_experiments.gradients.accounts import VECTORS, Promise, account

SHAPES = {"first": (6, 26), "last": (10, 85)}


def promise(epsilon: float, steps: int, rate: float = 1.0) -> Promise:
    return Promise(
        epsilon=epsilon, delta=1e-5, sampling_rate=rate, steps=steps, lot_size=100, matrices=SHAPES
    )


def multiplier(mechanism: str, asked: Promise) -> float:
    found = account(mechanism, asked).noise_multiplier
    assert found is not None
    return found


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the textbook privacy curve, which is good enough at these numbers."""
    normal = stats.norm.cdf
    return float(normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu))


def bound(epsilon: float, delta: float) -> float:
    return float(optimize.brentq(lambda mu: gaussian_delta(mu, epsilon) - delta, 1e-6, 50.0))


def composed(epsilon: float, steps: int, slack: float) -> float:
    """Return Theorem 3.4 as it is printed."""
    drift = steps * epsilon * (math.exp(epsilon) - 1) / (math.exp(epsilon) + 1)
    logs = (math.log(math.e + math.sqrt(steps) * epsilon / slack), math.log(1 / slack))
    return min(steps * epsilon, *(drift + epsilon * math.sqrt(2 * steps * one) for one in logs))


def best_claims(asked: Promise, steps: int) -> list[tuple[float, float]]:
    """Return the claim of each step for many splits of delta."""
    claims = [(asked.epsilon / steps, asked.delta / steps)]
    for share in np.linspace(0.02, 0.98, 49):
        slack = share * asked.delta
        each = optimize.brentq(
            lambda one, slack=slack: composed(one, steps, slack) - asked.epsilon, 1e-12, 10.0
        )
        claims.append((float(each), (1 - share) * asked.delta / steps))
    return claims


def sampled(claim: tuple[float, float], rate: float) -> tuple[float, float]:
    return math.log(1 + (math.exp(claim[0]) - 1) / rate), claim[1] / rate


@pytest.mark.parametrize(("epsilon", "steps"), [(1.0, 10), (1.0, 1000), (0.1, 1000)])
def test_theorem_3_is_a_split_budget(epsilon: float, steps: int) -> None:
    found = multiplier("imgm-theorem-3", promise(epsilon, steps, 0.1))
    assert found == pytest.approx(math.sqrt(steps) / bound(epsilon, 1e-5), rel=1e-6)
    part = Budget(epsilon, 1e-5).split(steps)[0]
    each = IMGM(FrobeniusBall(1.0, neighbouring="add-remove"), part)
    assert found == pytest.approx(each.covariance.smallest_singular_value, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "steps", "classic", "analytic", "moments", "rdp"),
    [
        (1.0, 10, 4.60, 3.21, 1.31, 1.084),
        (1.0, 1000, 7.87, 5.30, 1.31, 1.084),
        (0.1, 1000, 8.36, 4.99, 1.56, 1.105),
        (0.01, 1000, 9.08, 4.68, 1.97, 1.134),
    ],
)
def test_noise_relative_to_exact_composition(
    epsilon: float, steps: int, classic: float, analytic: float, moments: float, rdp: float
) -> None:
    # Known ratios for full batches. Those of Theorem 3.4 are for delta split in half, and the best
    # split gains up to four per cent.
    asked = promise(epsilon, steps)
    exact = multiplier("imgm-pld", asked)
    for name, known in (("classic", classic), ("analytic", analytic)):
        for way in (name, f"{name}-amplified"):  # at a rate of 1 nothing is amplified
            assert 0.955 * known <= multiplier(way, asked) / exact <= 1.002 * known
    assert multiplier("moments", asked) / exact == pytest.approx(moments, abs=0.006)
    assert multiplier("rdp", asked) / exact == pytest.approx(rdp, abs=0.0006)


@pytest.mark.parametrize("rate", [1.0, 0.05])
def test_claims_at_the_best_split(rate: float) -> None:
    asked = promise(0.5, 40, rate)
    bases = [sampled(claim, rate) for claim in best_claims(asked, asked.steps)]
    analytic = min(1 / bound(epsilon, delta) for epsilon, delta in bases)
    classic = min(
        math.sqrt(2 * math.log(1.25 / delta)) / epsilon for epsilon, delta in bases if epsilon <= 1
    )
    assert multiplier("analytic-amplified", asked) == pytest.approx(analytic, rel=1e-3)
    assert multiplier("classic-amplified", asked) == pytest.approx(classic, rel=1e-3)
    plain = Promise(epsilon=0.5, delta=1e-5, sampling_rate=1.0, steps=40, lot_size=100)
    for name in ("analytic", "classic"):
        assert multiplier(name, asked) == multiplier(f"{name}-amplified", plain)


def test_moments_in_closed_form() -> None:
    # epsilon = mu^2/2 + mu sqrt(2 log(1/delta)) at the best order.
    root = math.sqrt(-2 * math.log(1e-5))
    mu = math.sqrt(root * root + 2 * 0.7) - root
    assert multiplier("moments", promise(0.7, 9)) == pytest.approx(3 / mu, rel=1e-5)


def test_one_sampled_step_in_closed_form() -> None:
    rate = 0.2
    found = account("rdp", promise(0.6, 1, rate))
    scale, epsilon = found.noise_multiplier or 0.0, found.true_epsilon or 0.0
    # Removing the record: N(0) against (1-q) N(0) + q N(1), whose ratio grows with x.
    cut = scale**2 * math.log((math.exp(epsilon) - 1 + rate) / rate) + 0.5
    one, other = stats.norm.sf(cut / scale), stats.norm.sf((cut - 1) / scale)
    delta = (1 - rate) * one + rate * other - math.exp(epsilon) * one
    assert 0.99e-5 <= delta <= 1e-5
    assert epsilon < 0.6


def test_mvg_by_its_theorem() -> None:
    asked = promise(1.0, 20)
    claims = best_claims(asked, asked.steps * len(SHAPES))
    found = account("mvg", asked)
    for name, (rows, columns) in SHAPES.items():
        rank, entries = min(rows, columns), rows * columns
        harmonic = sum(1 / i for i in range(1, rank + 1))
        alpha = (harmonic + sum(i**-0.5 for i in range(1, rank + 1))) * 100.0**2
        alpha += 2 * harmonic * 100.0
        scales = []
        for epsilon, delta in claims:
            surprise = -math.log(delta)
            zeta = math.sqrt(2 * math.sqrt(entries * surprise) + 2 * surprise + entries)
            beta = 2 * entries**0.25 * harmonic * zeta
            allowed = (math.sqrt(beta**2 + 8 * alpha * epsilon) - beta) ** 2 / (4 * alpha**2)
            # Sigma1 = s I, Sigma2 = s I: the product of the norms of their inverses is allowed.
            scales.append(math.sqrt(math.sqrt(rows * columns) / allowed))
        assert found.layers[name] == pytest.approx(min(scales), rel=1e-3)
    assert found.noise_multiplier == min(found.layers.values())


def test_mvg_keeps_its_promise_although_its_matrices_claim_different_things() -> None:
    # Each at its own best split these would be 0.01013 together, by Theorem 3.5.
    shapes = {"a": (1, 2), "b": (5000, 5000), "c": (3, 3), "d": (2000, 3000)}
    asked = Promise(
        epsilon=0.01, delta=1e-5, sampling_rate=0.1, steps=3, lot_size=100, matrices=shapes
    )
    found = account("mvg", asked)
    for name, (rows, columns) in shapes.items():
        alone = claimed_noise(
            Comparison(
                rows=rows, columns=columns, epsilon=0.01, delta=1e-5, norm_bound=100.0, steps=12
            ),
            "MVG sharp",
        )
        assert alone is not None
        assert 1.0 < found.layers[name] / alone.scale < 1.03
    # Where that is no more than the promise, no noise is added.
    equal = msgspec.structs.replace(asked, matrices={"a": (9, 9), "b": (9, 9)})
    alone = claimed_noise(
        Comparison(rows=9, columns=9, epsilon=0.01, delta=1e-5, norm_bound=100.0, steps=6),
        "MVG sharp",
    )
    assert alone is not None
    assert account("mvg", equal).noise_multiplier == alone.scale


def test_mvg_gives_no_matrix_less_than_the_vectors() -> None:
    asked = Promise(
        epsilon=1.0,
        delta=1e-5,
        sampling_rate=0.1,
        steps=20,
        lot_size=100,
        matrices={"small": (2, 3), "large": (50, 60), VECTORS: (40, 2)},
    )
    found = account("mvg", asked)
    assert set(found.layers) == {"small", "large"}
    assert found.layers["small"] == found.noise_multiplier
    assert found.layers["large"] > (found.noise_multiplier or math.inf)


def test_the_matrix_mechanism_is_the_analytic_gaussian() -> None:
    asked = promise(0.5, 40, 0.05)
    assert multiplier("matrix", asked) == multiplier("analytic", asked)
    # One query on one cell: the best strategy is the query itself.
    budget = Budget(0.5, 1e-5)
    release = MatrixMechanism(Identity(1), budget, neighbouring="add-remove")
    assert release.covariance.entry_scales((1, 1)).item() == pytest.approx(
        1 / bound(0.5, 1e-5), rel=1e-6
    )


def test_every_rule_keeps_its_promise_and_wastes_something() -> None:
    asked = promise(1.0, 30, 0.2)
    order = ["imgm-pld", "rdp", "moments", "imgm-theorem-3", "analytic", "classic", "mvg"]
    found = [account(name, asked).true_epsilon for name in order]
    spent = [one for one in found if one is not None]
    assert len(spent) == len(order)
    assert 1.0 - 1e-4 <= spent[0] <= 1.0
    assert all(tighter > looser for tighter, looser in pairwise(spent))


def test_a_rule_that_does_not_apply_says_so() -> None:
    # One step at a rate of 0.1: its claim before amplification is epsilon 2.9.
    found = account("classic-amplified", promise(1.0, 1, 0.1))
    assert found.noise_multiplier is None
    assert found.true_epsilon is None
    assert "at most 1" in (found.refusal or "")
