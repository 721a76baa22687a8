"""The truth of a claim, against ball arithmetic and on the two claims that the docs take apart."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import InvalidParameterError, privacy_mu
from matrixdp.audit import audit_claim
from reference import ball as truth

positive = st.floats(1e-3, 1e3)


@given(
    st.floats(0.05, 1e3), positive, st.floats(0.01, 20), st.floats(1e-12, 0.1), st.integers(1, 99)
)
def test_the_truth_is_on_the_safe_side(
    multiplier: float, sensitivity: float, epsilon: float, delta: float, steps: int
) -> None:
    scale = multiplier * sensitivity
    found = audit_claim(scale, sensitivity, epsilon=epsilon, delta=delta, steps=steps)
    mu = math.sqrt(steps) * sensitivity / scale
    assert found.mu == pytest.approx(mu, rel=1e-14)
    # A hair less than the mu, since that was rounded up: the claimed truth must hold for it.
    smaller = found.mu * (1 - 1e-14)
    assert truth.delta_minus(smaller, epsilon, found.true_delta) <= 0
    if found.true_epsilon > 0:
        assert truth.epsilon_side(smaller, found.true_epsilon, delta) <= 0
    assert found.holds == (scale >= found.needed_noise_scale)
    if found.holds:
        assert found.true_epsilon <= epsilon
        assert found.true_delta <= delta


def test_the_noise_that_is_needed_keeps_the_claim() -> None:
    claim = {"epsilon": 0.7, "delta": 1e-6, "steps": 12}
    needed = audit_claim(1.0, 2.5, **claim).needed_noise_scale  # type: ignore[arg-type]
    assert needed == pytest.approx(2.5 * math.sqrt(12) / privacy_mu(0.7, 1e-6), rel=1e-14)
    assert audit_claim(needed, 2.5, **claim).holds  # type: ignore[arg-type]
    for short in (0.999, 1 - 1e-12):
        assert not audit_claim(needed * short, 2.5, **claim).holds  # type: ignore[arg-type]
    for number in range(1, 40):
        scale = 0.37 * number
        mu = audit_claim(scale, 2.5, **claim).mu  # type: ignore[arg-type]
        assert Fraction(mu) ** 2 >= 12 * (Fraction(2.5) / Fraction(scale)) ** 2


def test_the_classic_formula_at_epsilon_ten() -> None:
    scale = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    found = audit_claim(scale, 1.0, epsilon=10.0, delta=1e-5)
    assert not found.holds
    assert found.true_delta == pytest.approx(2.27e-5, abs=5e-8)
    assert found.true_epsilon > 10.3


def test_linear_amplification() -> None:
    # Noise for (epsilon / q, delta / q), claimed to be (epsilon, delta) of features released once.
    rate = 256 / 55000
    scale = 1 / privacy_mu(1 / rate, 1e-5 / rate)
    found = audit_claim(scale, 1.0, epsilon=1.0, delta=1e-5)
    assert not found.holds
    assert found.true_epsilon == pytest.approx(240, abs=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_scale": 0.0}, r"noise_scale=0\.0"),
        ({"noise_scale": math.nan}, "noise_scale=nan"),
        ({"sensitivity": -1.0}, r"sensitivity=-1\.0"),
        ({"epsilon": -1.0}, r"epsilon=-1\.0"),
        ({"delta": 1.0}, r"delta=1\.0"),
        ({"steps": 0}, "steps=0"),
        ({"noise_scale": 1e-9}, r"noise_scale=1e-09 is below a 10000th"),
        ({"noise_scale": 5e-324, "sensitivity": 1e300}, r"noise_scale=5e-324 is below"),
        ({"sensitivity": 1e308, "steps": 100}, r"sensitivity=1e\+308 in steps=100 needs"),
        ({"sensitivity": 1e300, "epsilon": 0.0, "delta": 1e-300}, r"sensitivity=1e\+300 in"),
    ],
)
def test_bad_parameters(change: dict[str, object], message: str) -> None:
    good = {"noise_scale": 1.0, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(InvalidParameterError, match=message):
        audit_claim(**{**good, **change})  # type: ignore[arg-type]
