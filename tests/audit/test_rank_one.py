"""The delta of rank-one noise: against ball arithmetic, a bound by hand, and samples of it."""

import itertools
import math

import numpy as np
import pytest
import scipy
from flint import arb, ctx

from matrixdp import InvalidParameterError
from matrixdp.audit import rank_one_delta, rank_one_noise_scale

CLAIMED = 1e-5


def threshold(norm: arb, count: int, scale: arb, loss: arb) -> arb:
    """Return by bisection the squared ratio of the distances where the loss itself is reached."""

    def excess(logarithm: arb) -> arb:
        ratio = logarithm.exp()
        return (count - 1) * logarithm / 2 + norm**2 * (ratio - 1) / (2 * scale**2) - loss

    low, high = arb(-1000), arb(1000)
    for _ in range(90):
        middle = ((low + high) / 2).mid()
        low, high = (middle, high) if excess(middle) < 0 else (low, middle)
    return low.exp()


def below(cosine: arb, count: int) -> arb:
    half = arb(count - 1) / 2
    point = (1 + cosine) / 2
    if point <= 0:
        return arb(0)
    return arb(1) if point >= 1 else arb.beta_lower(point, half, half, regularized=True)


def delta_in_ball_arithmetic(count: int, noise_scale: float, epsilon: float) -> float:
    """Return the integral over the logarithm of the norm, in panels of Gauss and Legendre."""
    ctx.prec = 120
    scale, loss = arb(noise_scale), arb(epsilon)
    nodes = [arb.legendre_p_root(8, k, weight=True) for k in range(8)]
    ends = np.linspace(math.log(1e-6), math.log(15 * max(noise_scale, 1.0)), 160)
    total = arb(0)
    for start, end in itertools.pairwise(ends):
        for node, weight in nodes:
            half = (arb(end) - arb(start)) / 2
            norm = (arb(start) + half * (1 + node)).exp()
            first = (1 + norm**-2 - threshold(norm, count, scale, loss)) * norm / 2
            second = (threshold(norm, count, scale, -loss) - 1 - norm**-2) * norm / 2
            density = (2 / arb.pi()).sqrt() / scale * (-(norm**2) / (2 * scale**2)).exp()
            event = below(first, count) - loss.exp() * below(second, count)
            total += weight * half * norm * density * event
    return float(total.mid())


@pytest.mark.parametrize(
    "count", [10, *(pytest.param(each, marks=pytest.mark.thorough) for each in (6, 21, 100))]
)
def test_delta_in_ball_arithmetic(count: int) -> None:
    scale = rank_one_noise_scale(count, 1.0, CLAIMED)
    truth = delta_in_ball_arithmetic(count, scale, 1.0)
    assert rank_one_delta(count, scale, 1.0) == pytest.approx(truth, rel=2e-6)


def draws(count: int, scale: float, answer: float, generator: np.random.Generator) -> np.ndarray:
    """Return outputs of the mechanism for an answer whose first number is that, others 0."""
    direction = generator.standard_normal((40_000, count))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    outputs = scale * generator.standard_normal((40_000, 1)) * direction
    outputs[:, 0] += answer
    return outputs


def surprises(outputs: np.ndarray, scale: float, epsilon: float) -> int:
    """Return for how many outputs 0 is more likely than 1, by a factor above e^epsilon."""
    zero = np.linalg.norm(outputs, axis=1)
    outputs = outputs.copy()
    outputs[:, 0] -= 1.0
    one = np.linalg.norm(outputs, axis=1)
    loss = (outputs.shape[1] - 1) * np.log(one / zero) + (one**2 - zero**2) / (2.0 * scale**2)
    return int(np.sum(loss > epsilon))


@pytest.mark.parametrize(("count", "epsilon"), [(3, 1.0), (10, 1.0), (10, 0.1), (100, 1.0)])
def test_samples_agree_and_refute(count: int, epsilon: float) -> None:
    # In three dimensions its own noise would show nothing: with less of it the samples do.
    scale = 2.0 if count == 3 else rank_one_noise_scale(count, epsilon, CLAIMED)
    generator = np.random.default_rng(count)
    zero, one = (
        surprises(draws(count, scale, answer, generator), scale, epsilon) for answer in (0.0, 1.0)
    )
    first, second, weight = zero / 40_000, one / 40_000, math.exp(epsilon)
    found = first - weight * second
    variance = first * (1 - first) + weight**2 * second * (1 - second)

    def deviations(noise_scale: float) -> float:
        return abs(found - rank_one_delta(count, noise_scale, epsilon)) / math.sqrt(
            variance / 40_000
        )

    assert deviations(scale) < 5
    # Noise of another scale would be told apart.
    assert deviations(0.7 * scale) > 5
    # Whatever the formula says, these two counts alone refute the claim.
    least = scipy.stats.beta.ppf(1e-9, zero, 40_001 - zero)
    most = scipy.stats.beta.ppf(1 - 1e-9, one + 1, 40_000 - one)
    assert least - weight * most > 1000 * CLAIMED


@pytest.mark.parametrize("count", [4, 10, 100, 10_000])
def test_a_ball_around_the_answer_is_a_bound_by_hand(count: int) -> None:
    scale = rank_one_noise_scale(count, 1.0, CLAIMED)
    found = rank_one_delta(count, scale, 1.0)
    for radius in (0.2, 0.5, 0.8):
        inside = scipy.special.erf(radius / scale / math.sqrt(2.0))
        # From the other answer, only directions in a cap of sine `radius` lead into the ball.
        cap = scipy.special.betainc((count - 1) / 2, 0.5, radius**2) / 2
        assert found >= inside - math.e * cap
    assert found <= 1.0


def test_the_calibration_is_what_the_abstract_says() -> None:
    # The squared error tends to 2 / epsilon, whatever delta is.
    assert rank_one_noise_scale(10**9, 4.0, 1e-5) ** 2 == pytest.approx(0.5, rel=1e-6)
    # In four dimensions psi is delta Gamma(3/2) / (sqrt(pi) Gamma(2)), which is delta / 2.
    assert rank_one_noise_scale(4, 1.0, 1e-5) ** 2 == pytest.approx(4e5, rel=1e-12)


def test_more_noise_gives_less_away() -> None:
    scales = (0.1, 0.5, 1.0, 5.0, 100.0, 1e4)
    found = [rank_one_delta(6, scale, 1.0) for scale in scales]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 1e-3
    for little in (1e-100, 1e-20, 1e-3):
        assert rank_one_delta(6, little, 1.0) == pytest.approx(1.0, abs=1e-8)
    # Far more noise than the answers are apart: in proportion to what is near them.
    near, far = (rank_one_delta(6, scale, 1.0) for scale in (1e20, 1e80))
    assert near / far == pytest.approx(1e60, rel=1e-6)
    assert rank_one_delta(3, rank_one_noise_scale(3, 1.0, CLAIMED), 1.0) < CLAIMED


@pytest.mark.thorough
def test_the_claim_is_false_from_four_numbers_on() -> None:
    for count in range(4, 1001):
        assert rank_one_delta(count, rank_one_noise_scale(count, 1.0, CLAIMED), 1.0) > 90 * CLAIMED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"numbers": 2}, "numbers=2 is below 3"),
        ({"numbers": 2.5}, r"numbers=2\.5"),
        ({"noise_scale": 0.0}, r"noise_scale=0\.0"),
        ({"noise_scale": 1e-101}, "noise_scale=1e-101 is outside of 1e-100"),
        ({"noise_scale": 1e101}, r"noise_scale=1e\+101 is outside of 1e-100"),
        ({"epsilon": 0.0}, r"epsilon=0\.0"),
        ({"epsilon": 301.0}, r"epsilon=301\.0 is above 300"),
    ],
)
def test_bad_parameters(change: dict[str, float], message: str) -> None:
    good = {"numbers": 10, "noise_scale": 1.0, "epsilon": 1.0}
    with pytest.raises(InvalidParameterError, match=message):
        rank_one_delta(**{**good, **change})  # type: ignore[arg-type]
    if "noise_scale" not in change and change.get("epsilon") != 301.0:
        good = {"numbers": 10, "epsilon": 1.0, "delta": 1e-5}
        with pytest.raises(InvalidParameterError, match=message):
            rank_one_noise_scale(**{**good, **change})  # type: ignore[arg-type]
