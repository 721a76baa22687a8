"""The noise multiplier that a target needs: on the safe side, and no larger than it has to be."""

import pytest

from matrixdp import privacy_mu
from matrixdp.errors import CalibrationError
from matrixdp.privacy import (
    Accountant,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
)
from matrixdp.privacy import multiplier as search
from matrixdp.privacy.amplification import before_amplification
from matrixdp.privacy.claims import best_equal_claims
from matrixdp.privacy.loss import Interval, LossAccount
from matrixdp.privacy.loss.points import TooManyPointsError
from reference.plans import sampled


@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(0.7, 0.013, 500), (1.5, 0.05, 100)])
def test_the_multiplier_is_on_the_safe_side_and_no_larger_than_needed(
    accountant: Accountant, epsilon: float, rate: float, steps: int
) -> None:
    multiplier = noise_multiplier_for(
        epsilon,
        1e-6,
        sampling_rate=rate,
        steps=steps,
        neighbouring="add-remove",
        accountant=accountant,
    )
    assert plan_epsilon(sampled(multiplier, rate, steps), 1e-6, accountant) <= epsilon
    smaller = sampled(multiplier * (1 - 1e-4), rate, steps)
    assert plan_epsilon(smaller, 1e-6, accountant) > epsilon


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(1.0, 0.02, 200), (3.0, 1.0, 25)])
def test_the_account_of_claims_is_the_inverse_of_their_best_split(
    epsilon: float, rate: float, steps: int
) -> None:
    def noise(loss: float, delta: float) -> float:
        base = before_amplification(loss, delta, sampling_rate=rate, sampling="poisson")
        return 1.0 / privacy_mu(base.epsilon, base.delta)

    each = best_equal_claims(epsilon, 1e-5, steps, noise)
    multiplier = noise_multiplier_for(
        epsilon,
        1e-5,
        sampling_rate=rate,
        steps=steps,
        neighbouring="add-remove",
        accountant=Accountant.CLAIMS,
    )
    assert multiplier == pytest.approx(noise(each.epsilon, each.delta), rel=1e-4)


def test_without_sampling_the_multiplier_is_the_bound() -> None:
    multiplier = noise_multiplier_for(
        1.0, 1e-5, sampling_rate=1.0, steps=49, neighbouring="replace"
    )
    assert multiplier == pytest.approx(7 / privacy_mu(1.0, 1e-5), rel=1e-15)


@pytest.mark.parametrize("accountant", Accountant)
def test_the_multiplier_of_a_replaced_record(accountant: Accountant) -> None:
    found = {
        bounded: noise_multiplier_for(
            1.0,
            1e-5,
            sampling_rate=1.0,
            steps=16,
            neighbouring="replace",
            bounded=bounded,
            accountant=accountant,
        )
        for bounded in ("difference", "contribution")
    }
    assert found["contribution"] == pytest.approx(2 * found["difference"], rel=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rate", "steps"),
    [
        pytest.param(1.0, 2.5e-6, 1e-6, 3, marks=pytest.mark.thorough),
        (8.0, 2e-6, 1e-6, 3),
        pytest.param(0.01, 1e-3, 1e-4, 12, marks=pytest.mark.thorough),
    ],
)
def test_the_multiplier_where_epsilon_falls_steeply(
    epsilon: float, delta: float, rate: float, steps: int
) -> None:
    found = noise_multiplier_for(
        epsilon, delta, sampling_rate=rate, steps=steps, neighbouring="add-remove"
    )
    assert plan_epsilon(sampled(found, rate, steps), delta) <= epsilon
    assert plan_epsilon(sampled(found * (1 - 1e-4), rate, steps), delta) > epsilon


def test_targets_that_no_multiplier_meets() -> None:
    with pytest.raises(CalibrationError, match="larger epsilon"):
        noise_multiplier_for(
            1e-9,
            1e-9,
            sampling_rate=1.0,
            steps=10**6,
            neighbouring="add-remove",
            accountant=Accountant.MOMENTS,
        )


@pytest.mark.parametrize("epsilon", [1e-300, 5e-324])
def test_tiny_epsilons(epsilon: float) -> None:
    # So far below what noise resolves that only an epsilon of 0 is within them.
    found = noise_multiplier_for(
        epsilon, 1e-3, sampling_rate=0.2, steps=1, neighbouring="add-remove"
    )
    assert plan_epsilon(sampled(found, 0.2, 1), 1e-3) <= epsilon
    assert plan_epsilon(sampled(found * (1 - 1e-4), 0.2, 1), 1e-3) > epsilon
    # At an epsilon of 0, delta is the rate times the total variation of the two Gaussians.
    assert found == pytest.approx(1.0 / privacy_mu(0.0, 1e-3 / 0.2), rel=1e-3)


def test_noise_whose_losses_need_too_many_points_is_stepped_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As for a million steps with one record each. Without the hole, 1.42 is enough.
    class Holey(LossAccount):
        def epsilon_at(self, delta: float) -> Interval:
            raise_within_the_hole(self.noise)
            return super().epsilon_at(delta)

        def __init__(self, events: list[SampledPlan], **options: float) -> None:
            super().__init__(events, **options)
            self.noise = events[0].noise_multiplier

    def raise_within_the_hole(noise: float) -> None:
        if 0.5 < noise < 1.7:
            raise TooManyPointsError("too many")

    def holey_epsilon(plan: SampledPlan, delta: float, accountant: Accountant) -> float:
        raise_within_the_hole(plan.noise_multiplier)
        return plan_epsilon(plan, delta, accountant)

    monkeypatch.setattr(search, "LossAccount", Holey)
    monkeypatch.setattr(search, "accounted_epsilon", holey_epsilon)
    found = noise_multiplier_for(
        1.0, 1e-5, sampling_rate=0.01, steps=1000, neighbouring="add-remove"
    )
    assert 1.7 <= found < 1.701
    assert plan_epsilon(sampled(found, 0.01, 1000), 1e-5) <= 1.0
