"""Special functions of scalars against ball arithmetic."""

import math

import numpy as np
from flint import arb, ctx

from matrixdp.privacy.arithmetic import erfcx, erfinv, normal_quantile


def relative_errors(values: list[float], truths: list[arb]) -> list[float]:
    return [
        abs(float((value / truth - 1).mid())) for value, truth in zip(values, truths, strict=True)
    ]


def test_erfcx_is_as_accurate_as_the_error_analysis_assumes() -> None:
    # More than the curve asks for: it stays above -0.5.
    points = np.concatenate(
        [np.linspace(-26, 60, 8000), 10.0 ** np.linspace(-20, 8, 500), [26.0, 25.999999999999996]]
    ).tolist()
    ctx.prec = 300
    try:
        truths = [arb(x).erfc() * (arb(x) * arb(x)).exp() for x in points]
        worst = max(relative_errors([erfcx(x) for x in points], truths))
    finally:
        ctx.prec = 53
    assert worst < 8 * 2.0**-53


def test_erfcx_at_the_ends() -> None:
    assert erfcx(0.0) == 1.0
    assert erfcx(-27.0) == math.inf
    assert erfcx(math.inf) == 0.0
    # Where the product overflows and its factors do not, and where the square does.
    for value in [*np.linspace(-26.65, -26.63, 50).tolist(), -1e155, -math.inf]:
        assert erfcx(value) == math.inf
    assert math.isclose(erfcx(1e200), 1.0 / (math.sqrt(math.pi) * 1e200), rel_tol=1e-15)


def test_inverses_give_back_what_they_are_given() -> None:
    probabilities = [*(10.0 ** np.linspace(-300, -1, 200)), *np.linspace(0.11, 0.999999, 200)]
    ctx.prec = 300
    try:
        errors = relative_errors(
            [float(p) for p in probabilities], [arb(erfinv(float(p))).erf() for p in probabilities]
        )
        tails = relative_errors(
            [float(p) for p in probabilities],
            [(-arb(normal_quantile(float(p))) / arb(2).sqrt()).erfc() / 2 for p in probabilities],
        )
    finally:
        ctx.prec = 53
    assert max(errors) < 1e-14
    # The quantile's relative error counts about its square, up to 37**2 times.
    assert max(tails) < 1e-12
