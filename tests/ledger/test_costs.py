"""Costs of payments: against ball arithmetic, domination point by point, and group privacy."""

import math
from fractions import Fraction

import pytest
from flint import arb, ctx

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.costs import claim_spending, pure_mu, release_spending
from matrixdp.privacy import privacy_delta

EPSILONS = [
    1e-12,
    1e-6,
    1e-3,
    0.1,
    0.7,
    0.999999,
    1.0,
    1.000001,
    1.5,
    3.0,
    10.0,
    40.0,
    200.0,
    700.0,
]


def normal_tail(mu: arb) -> arb:
    """Return Phi(-mu/2)."""
    return (mu / 2 / arb(2).sqrt()).erfc() / 2


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_mu_of_a_pure_claim_is_the_quantile_rounded_up(epsilon: float) -> None:
    ctx.prec = 2000
    try:
        # mu = 2 Phi^-1(e^eps / (1 + e^eps)) means Phi(-mu/2) = 1 / (1 + e^eps).
        rest = 1 / (1 + arb(epsilon).exp())
        mu = pure_mu(epsilon)
        assert normal_tail(arb(mu)) <= rest
        assert normal_tail(arb(mu * (1 - 4e-12))) > rest
    finally:
        ctx.prec = 53


def randomised_response(epsilon: float, at: float) -> float:
    """Return delta(at) of randomised response, the least private of all epsilon-private ones."""
    return max(0.0, (math.exp(epsilon) - math.exp(at)) / (1 + math.exp(epsilon)))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 6.0])
def test_a_gaussian_release_dominates_a_pure_claim_everywhere(epsilon: float) -> None:
    mu = pure_mu(epsilon)
    grid = [epsilon * index / 200 for index in range(200)]
    assert all(privacy_delta(mu, at) >= randomised_response(epsilon, at) for at in grid)
    # At 0 the two are equal: with any less, the Gaussian release would not dominate.
    assert privacy_delta(0.999 * mu, 0.0) < randomised_response(epsilon, 0.0)


@pytest.mark.parametrize("records", [1, 2, 3, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (0.0, 1e-9), (2.0, 0.0)])
def test_a_claim_for_groups_is_that_of_each_step_after_the_other(
    records: int, epsilon: float, delta: float
) -> None:
    # P_0(S) <= e^eps P_1(S) + delta, and so on from neighbour to neighbour.
    failing = Fraction(0)
    for _ in range(records):
        failing = Fraction(math.exp(epsilon)) * failing + Fraction(delta)
    cost = claim_spending(epsilon, delta, records)
    assert cost.mu_squared == Fraction(pure_mu(records * epsilon)) ** 2
    assert failing * (1 - Fraction(1, 10**12)) <= cost.delta
    assert float(cost.delta) == pytest.approx(float(failing), rel=1e-10)


def test_the_closed_form_of_the_study() -> None:
    epsilon, delta, records = 0.3, 1e-7, 4
    stated = delta * (math.exp(records * epsilon) - 1) / (math.exp(epsilon) - 1)
    assert float(claim_spending(epsilon, delta, records).delta) == pytest.approx(stated, rel=1e-10)


def test_claims_without_groups_cost_their_delta_exactly() -> None:
    assert claim_spending(0.5, 1e-6, 1).delta == Fraction(1e-6)


def test_a_claim_for_very_many_records_takes_no_time() -> None:
    records, delta = 2**60, Fraction(1e-30)
    assert claim_spending(0.0, 1e-30, records).delta == records * delta
    # (e^(k epsilon) - 1) / (e^epsilon - 1), which is about (e - 1) / epsilon.
    cost = float(claim_spending(2.0**-60, 1e-30, records).delta)
    assert cost == pytest.approx(records * 1e-30 * (math.e - 1), rel=1e-10)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-310, 1e-300])
def test_the_smallest_claims_cost_something(epsilon: float) -> None:
    # The mu of a small epsilon is sqrt(pi / 2) epsilon.
    assert Fraction(pure_mu(epsilon)) > Fraction(1.2533141373155) * Fraction(epsilon)
    assert pure_mu(0.0) == 0.0


def test_a_claim_that_protects_no_unit_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="protects no unit of 100 records"):
        claim_spending(8.0, 1e-6, 100)


def test_releases_cost_the_square_of_all_records() -> None:
    assert release_spending(0.1, 1).mu_squared == Fraction(0.1) ** 2
    assert release_spending(0.1, 7).mu_squared == 49 * Fraction(0.1) ** 2
    assert release_spending(0.1, 7).delta == 0
