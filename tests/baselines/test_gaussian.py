"""The classic formula against ball arithmetic: rounded up, and refused where it is not proven."""

import math

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import InvalidParameterError, privacy_mu
from matrixdp.baselines.gaussian import classic_noise_scale


@given(st.floats(1e-6, 1e6), st.floats(1e-8, 1.0), st.floats(1e-300, 0.999))
def test_it_is_rounded_up(sensitivity: float, epsilon: float, delta: float) -> None:
    ctx.prec = 200
    true = arb(sensitivity) * (2 * (arb(5) / 4 / arb(delta)).log()).sqrt() / arb(epsilon)
    found = classic_noise_scale(sensitivity, epsilon, delta)
    assert bool(arb(found) >= true)
    assert bool(arb(found) <= true * (1 + arb(3e-14)))
    # And its proof reaches as far as is allowed: never less noise than the exact bound needs.
    assert found >= sensitivity / privacy_mu(epsilon, delta) * (1 - 1e-13)


@pytest.mark.parametrize("sensitivity", [5e-324, 1e-323, 1e-320, 1e-308, 1e-300])
@pytest.mark.parametrize("epsilon", [1.0, 0.5, 1e-10, 1e-300])
@pytest.mark.parametrize("delta", [2.0**-1022, 1e-5, 1 - 1e-12])
def test_it_is_rounded_up_where_floats_underflow(
    sensitivity: float, epsilon: float, delta: float
) -> None:
    ctx.prec = 2000
    true = arb(sensitivity) * (2 * (arb(5) / 4 / arb(delta)).log()).sqrt() / arb(epsilon)
    assert bool(arb(classic_noise_scale(sensitivity, epsilon, delta)) >= true)


@pytest.mark.parametrize("epsilon", [math.nextafter(1.0, 2.0), 10.0, 0.0, -1.0, math.nan])
def test_other_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon="):
        classic_noise_scale(1.0, epsilon, 1e-5)
