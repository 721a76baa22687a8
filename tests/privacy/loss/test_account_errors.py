"""Whole accounts where something is close to its limit: each test fails if that is forgotten."""

import math
from collections.abc import Iterator

import pytest
from flint import arb, ctx

from matrixdp import InvalidParameterError
from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan, noise_multiplier_for
from matrixdp.privacy.loss import curve as bounds
from matrixdp.privacy.loss.curves import ChernoffCurve, InvertedCurve
from matrixdp.privacy.loss.tilting import Saddle
from reference.ball import curve
from reference.loss_checks import RELATIONS, account_of
from reference.loss_truth import largest_delta


@pytest.fixture(autouse=True, scope="module")
def _precise() -> Iterator[None]:
    former, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = former


@pytest.mark.parametrize("multiplier", [0.2, 0.229])
def test_replaced_records_that_are_nearly_always_sampled(multiplier: float) -> None:
    rate = 1.0 - 1e-12
    lower, upper = account_of("replace", [(multiplier, rate, 1)]).delta_at(0.0)
    truth = largest_delta(RELATIONS["replace"], multiplier, rate, 0.0)
    assert bool(arb(lower) <= truth)
    assert bool(truth <= arb(upper))


def test_an_epsilon_of_zero_needs_a_delta_of_the_whole_sampling_rate() -> None:
    assert account_of("add-remove", [(0.05, 0.1, 1)]).epsilon_at(0.07).upper > 1.0
    assert account_of("add-remove", [(0.05, 0.1, 1)]).epsilon_at(0.1).upper == 0.0


class _Larger:
    """A curve of the other direction that costs more."""

    def log_upper(self, epsilon: float) -> float:
        return 2.0 - epsilon


def test_the_other_direction_counts_if_it_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds.CurveBounds, "_nowhere_exchanged", lambda *_: False)
    for kind in (ChernoffCurve, InvertedCurve):
        monkeypatch.setattr(kind, "_exchanged", lambda *_: iter([_Larger()]))
    plan = account_of("add-remove", [(1.0, 0.1, 3)])
    assert plan.delta_at(5.0).upper >= math.exp(-3.0)
    assert plan.epsilon_at(1e-4).upper >= 2.0 - math.log(1e-4)


@pytest.mark.parametrize("off", [-1e-6, 0.0, 1e-6])
def test_an_epsilon_is_on_the_safe_side_of_a_jump(
    off: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    saddle = Saddle(1.0, 1.0, 0.0, 1.0, 0.0)
    monkeypatch.setattr(bounds, "_crossing", lambda *_: 3.0 + off)

    def excess(epsilon: float) -> float:
        return 1.0 if epsilon < 3.0 else -1.0

    assert excess(bounds._least_safe(excess, saddle)) <= 0.0
    assert excess(bounds._largest_unsafe(excess, saddle)) >= 0.0


def test_the_lower_bound_of_a_release_holds_near_an_epsilon_of_zero() -> None:
    release = GaussianRelease(mu=1.0491142607309762, neighbouring="add-remove")
    delta = 0.40008421537029754
    lower = LossAccount([release]).epsilon_at(delta).lower
    assert bool(curve(arb(release.mu), arb(lower)) >= arb(delta))


def test_the_lower_bound_of_a_release_holds_where_delta_underflows() -> None:
    release = GaussianRelease(mu=0.5, neighbouring="add-remove")
    assert LossAccount([release]).delta_at(60.0).lower == 0.0


@pytest.mark.parametrize("events", [None, [], ["x"], "plans", iter([])])
def test_what_is_not_a_list_of_events_is_refused(events: object) -> None:
    with pytest.raises(InvalidParameterError, match="events must be a list"):
        LossAccount(events)  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_multiplier_for_an_epsilon_that_jumps_to_zero() -> None:
    # Enough noise for delta alone is enough for every epsilon; a little less is not.
    plan = {"sampling_rate": 0.01, "steps": 1000, "neighbouring": "add-remove"}
    found = noise_multiplier_for(1e-9, 1e-5, **plan)  # type: ignore[arg-type]
    kept = SampledPlan(noise_multiplier=found, **plan)  # type: ignore[arg-type]
    assert LossAccount([kept]).epsilon_at(1e-5).upper <= 1e-9
    less = SampledPlan(noise_multiplier=found * (1 - 1e-4), **plan)  # type: ignore[arg-type]
    assert LossAccount([less]).epsilon_at(1e-5).upper > 1e-9
