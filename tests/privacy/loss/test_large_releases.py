"""Sampled plans beside releases of a large mu, whose masses and factors are beyond floats."""

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.errors import CalibrationError
from matrixdp.privacy import GaussianRelease, LossAccount
from matrixdp.privacy.events import TooLittleNoiseError
from matrixdp.privacy.loss import curve as bounds
from matrixdp.privacy.loss.curves import ChernoffCurve, InvertedCurve
from matrixdp.privacy.loss.huge import Apart, Huge
from matrixdp.privacy.loss.inversion import Inverted
from matrixdp.privacy.loss.tilting import Cumulants, Saddle
from reference.ball import curve
from reference.loss_checks import account_of

CASES = 16
SEED = 26


def random_case(numbers: random.Random) -> tuple[LossAccount, float]:
    """Return a plan with a release, and the mu of that release."""
    relation = numbers.choice(["add-remove", "add-remove", "replace"])
    multiplier = 10.0 ** numbers.choice([numbers.uniform(-1.7, 1.0), numbers.uniform(1.0, 12.0)])
    rate = min(0.999, 10.0 ** numbers.uniform(-6.0, 0.0))
    mu = 10.0 ** numbers.uniform(1.5, 2.1)
    steps = int(10.0 ** numbers.uniform(0.0, 3.0))
    return account_of(relation, [(multiplier, rate, steps)], [mu]), mu


@pytest.mark.parametrize("case", range(CASES))
def test_a_plan_costs_at_least_as_much_as_its_release(case: int) -> None:
    numbers = random.Random(SEED + case)  # noqa: S311
    account, mu = random_case(numbers)
    delta = 10.0 ** numbers.uniform(-12.0, -1.0)
    with ctx.workprec(3000):
        try:
            found = account.epsilon_at(delta)
        except CalibrationError:
            return
        # The release alone already costs this much; a little noise more cannot cost less.
        assert 0.0 <= found.lower <= found.upper < math.inf
        assert not bool(curve(arb(mu), arb(found.upper)) > arb(delta))
        least, most = account.delta_at(found.upper)
        assert 0.0 <= least <= most <= 1.0
        assert not bool(curve(arb(mu), arb(found.upper)) > arb(most))
        # The two questions are about one curve.
        assert least <= delta * (1.0 + 1e-9)


@pytest.mark.parametrize("mu", [30.0, 60.0, 120.0])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_steps_that_hardly_matter_leave_the_curve_of_the_release(relation: str, mu: float) -> None:
    account = account_of(relation, [(1e6, 1e-3, 2)], [mu])
    alone = LossAccount([GaussianRelease(mu=mu, neighbouring="add-remove")])
    assert account.epsilon_at(1e-5).upper == pytest.approx(alone.epsilon_at(1e-5).upper, rel=1e-3)
    epsilon = 0.5 * mu * mu
    assert account.delta_at(epsilon).upper == pytest.approx(alone.delta_at(epsilon).upper, rel=1e-2)


@pytest.mark.parametrize("mu", [2e3, 1e4])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_a_hopeless_release_is_refused_before_anything_is_composed(
    relation: str, mu: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixdp.privacy.loss.account._WAYS", [None])
    account = account_of(relation, [(1.0, 0.01, 1000)], [mu])
    with pytest.raises(TooLittleNoiseError, match="mu="):
        account.epsilon_at(1e-5)
    lower, upper = account.delta_at(10.0)
    assert 1.0 - 1e-9 <= lower <= upper == 1.0


HOPELESS = [
    ([(0.02, 0.9, 10**6)], []),
    ([(0.02, 0.5, 10**4)], [60.0]),
    ([(0.5, 0.9, 10**7)], []),
    ([(1.0, 0.01, 1000), (0.02, 0.01, 10**9)], [1.0]),
]


@pytest.mark.parametrize(("steps", "releases"), HOPELESS)
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_hopeless_steps_are_refused_before_anything_is_composed(
    relation: str,
    steps: list[tuple[float, float, int]],
    releases: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    saddle_at = Cumulants.saddle

    def counted(cumulants: Cumulants, tilt: float) -> Saddle:
        tried.append(tilt)
        return saddle_at(cumulants, tilt)

    monkeypatch.setattr(Cumulants, "saddle", counted)
    monkeypatch.setattr("matrixdp.privacy.loss.account._WAYS", [None])
    with pytest.raises(TooLittleNoiseError, match="epsilon"):
        account_of(relation, steps, releases).epsilon_at(1e-5)
    assert len(tried) <= 100


@pytest.mark.parametrize(("multiplier", "steps"), [(0.03, 1600), (0.02, 700)])
def test_a_plan_just_below_the_largest_epsilon_is_accounted_for(
    multiplier: float, steps: int
) -> None:
    found = account_of("replace", [(multiplier, 0.999, steps)]).epsilon_at(1e-5)
    assert 0.88e6 < found.lower <= found.upper < 0.91e6


NONE_HUGE = Huge(1.0, 1.0, -800.0, -800.0, -800.0, 0.0, 0.0, [(1.0, 0.0)])


def unknown(value: float) -> Inverted:
    """Return a curve whose integrand is not a number."""
    values = np.full(256, value, dtype=np.complex128)
    return Inverted(1.0, 0.0, 0.1, values, 0.0, 0.0, 0.0, ((1.0, 0.0),), 1e-9)


def test_a_bound_that_is_not_a_number_is_infinite() -> None:
    part = unknown(math.nan)
    for found in (part, Apart(part, NONE_HUGE)):
        assert found.log_upper(0.5) == math.inf
    assert part.log_lower(0.5) == -math.inf


def test_a_direction_of_which_nothing_is_known_is_not_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds.CurveBounds, "_nowhere_exchanged", lambda *_: False)
    for kind in (ChernoffCurve, InvertedCurve):
        monkeypatch.setattr(kind, "_exchanged", lambda *_: iter([unknown(math.nan)]))
    account = account_of("add-remove", [(1.0, 0.1, 3)])
    # Unless one of three steps samples it, a record costs nothing.
    assert account.delta_at(0.1).upper == pytest.approx(0.3)
    with pytest.raises(TooLittleNoiseError):
        account.epsilon_at(1e-4)


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -1.0, 0.0, 3.0])
@pytest.mark.parametrize("tilt", [1e-320, 1.0, math.inf])
def test_a_search_ends_whatever_is_known(epsilon: float, tilt: float) -> None:
    start = Saddle(tilt, epsilon, 0.0, 1.0, 0.0)

    def known_from(least: float) -> Callable[[float], float]:
        return lambda e: -1.0 if e >= least else math.nan

    def always(value: float) -> Callable[[float], float]:
        return lambda _: value

    for unknown_up_to in (0.0, 1e-250, 0.5, 2e5):
        found = bounds._least_safe(known_from(unknown_up_to), start)
        assert unknown_up_to <= found <= max(unknown_up_to * 1.001, 1e-20)
    for nothing in (math.nan, math.inf):
        with pytest.raises(TooLittleNoiseError):
            bounds._least_safe(always(nothing), start)
    assert bounds._largest_unsafe(always(-math.inf), start) == 0.0


def test_a_share_that_is_not_a_number_is_infinite() -> None:
    huge = Huge(1.0, 1.0, math.nan, -800.0, -800.0, 0.0, 0.0, [(1.0, 0.0)])
    assert Apart(unknown(0.01), huge).log_upper(0.5) == math.inf


def test_an_epsilon_that_is_never_safe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_crossing", lambda *_: 3.0)
    with pytest.raises(TooLittleNoiseError):
        bounds._least_safe(lambda _: math.inf, Saddle(1.0, 1.0, 0.0, 1.0, 0.0))
