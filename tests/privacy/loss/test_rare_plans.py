"""Plans that hardly ever sample: narrow bounds that enclose what ball arithmetic found."""

import math

import pytest
from flint import arb, ctx

from matrixdp.privacy.loss.curves import InvertedCurve, Smoothed, SmoothedCurve
from matrixdp.privacy.loss.inversion import Part, chernoff, inverted
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.points import points_of
from matrixdp.privacy.loss.tilting import Cumulants
from reference.ball import curve
from reference.loss_checks import account_of, encloses
from reference.loss_composition import composed_delta
from reference.loss_truth import ADD_REMOVE, REPLACE, one_step_delta
from reference.loss_truth import Pair as TruePair

# Multiplier, rate, steps, epsilon, and delta enclosed by `composed_delta`; it takes up to a minute.
TRUTHS = [
    (0.95, 3.3e-5, 57_830, 0.039153163, "9.9999998543331e-7", 1e-20),
    (0.66, 3.7e-6, 5_318, 0.0068064961, "6.99999938284e-8", 4e-20),
    (0.6266, 1e-4, 50, 0.3, "1.01408382842e-8", 4e-20),
    (5.0, 0.082, 2_500, 0.0, "0.320500034580797", 2e-15),
]


@pytest.mark.parametrize("case", TRUTHS)
def test_delta(case: tuple[float, float, int, float, str, float]) -> None:
    multiplier, rate, steps, epsilon, value, radius = case
    found = account_of("add-remove", [(multiplier, rate, steps)]).delta_at(epsilon)
    assert encloses(found, arb(value, radius))
    assert found.width <= 1e-4 * found.upper


@pytest.mark.thorough
@pytest.mark.parametrize("case", TRUTHS)
def test_the_stored_deltas_are_what_is_computed(
    case: tuple[float, float, int, float, str, float],
) -> None:
    multiplier, rate, steps, epsilon, value, radius = case
    with ctx.workprec(200):
        again = composed_delta([(TruePair(multiplier, rate, "remove"), steps)], epsilon)
        assert again.overlaps(arb(value, radius))


def test_huge_losses_of_a_replaced_record() -> None:
    # Delta there, by the power of the transform of a fine lattice.
    epsilon, delta = 0.7902386042623665, 3.19037291e-7
    account = account_of("replace", [(0.6181386791212109, 0.001069450323107131, 5)])
    found = account.epsilon_at(delta)
    assert found.upper >= epsilon
    assert found.lower <= epsilon
    assert found.width <= 1e-5 * epsilon


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [
        (0.6, 1e-6, 1_000_000, 1e-6),
        (0.66, 3.7e-6, 5_318, 7e-8),
        (0.95, 3.3e-5, 57_830, 1e-9),
        (1.0, 1e-3, 1_000_000, 1e-5),
        (0.6, 1e-6, 1_000, 1e-9),
        (0.65, 7.4e-5, 15, 6e-9),
    ],
)
def test_epsilon_is_narrow(
    relation: str, multiplier: float, rate: float, steps: int, delta: float
) -> None:
    account = account_of(relation, [(multiplier, rate, steps)])
    lower, upper = account.epsilon_at(delta)
    assert 0.0 < upper - lower <= 1e-4 * upper
    # There and back, by another composition.
    assert account.delta_at(upper).lower <= delta * (1.0 + 1e-12)
    assert delta * (1.0 - 1e-12) <= account.delta_at(lower).upper


@pytest.mark.parametrize("pair", [AddRemovePair(1e-3, 1.4), ReplacePair(1e-3, 1.4)])
@pytest.mark.parametrize("release", [0.0, 0.2])
def test_ways_to_the_same_curve_agree(pair: Pair, release: float) -> None:
    steps: list[tuple[Pair, int]] = [(pair, 40)]
    if release > 0.0:
        steps.append((AddRemovePair(1.0, release), 1))
    tail, epsilon, log_delta = 1e-18, 1.5, math.log(1e-7)
    near = Cumulants(steps, tail).at_point(epsilon, log_delta)
    found = InvertedCurve(steps, tail, 1e-4).delta(epsilon, near)
    other = SmoothedCurve(steps, tail, 1e-3).delta(epsilon, near)
    assert max(found.lower, other.lower) <= min(found.upper, other.upper)
    assert found.width <= 1e-3 * found.upper
    assert other.width <= 1e-1 * other.upper


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_one_step_beside_a_release_that_reveals_hardly_anything(relation: str) -> None:
    directions = ADD_REMOVE if relation == "add-remove" else REPLACE
    pair = AddRemovePair(1e-3, 1.25) if relation == "add-remove" else ReplacePair(1e-3, 1.25)
    epsilon, tail = 0.4, 1e-20
    true = one_step_delta(TruePair(0.8, 1e-3, directions[0]), epsilon)
    steps: list[tuple[Pair, int]] = [(pair, 1)]
    near = Cumulants(steps, tail).at_point(epsilon, math.log(float(true.mid())))
    found = SmoothedCurve(steps, tail, 1e-4)._own(near)
    with ctx.workprec(100):
        assert bool(true.log() <= arb(found.log_upper(epsilon)))
        assert bool(arb(found.log_lower(epsilon)) <= true.log())
    assert found.log_upper(epsilon) - found.log_lower(epsilon) <= 1e-3


def test_a_release_alone_is_the_gaussian_curve() -> None:
    steps = [Part(AddRemovePair(1.0, 0.7), (0.0, 0.0), 1), Part(AddRemovePair(1.0, 0.2), (0, 0), 3)]
    cumulants = Cumulants([(part.pair, part.number) for part in steps], 1e-30)
    mu = math.sqrt(0.49 + 0.12)
    for epsilon in (0.0, 0.3, 2.0, 6.0):
        with ctx.workprec(200):
            true = curve(arb(mu), arb(epsilon)).log()
        near = cumulants.at_point(epsilon, float(true.mid()))
        found = inverted(steps, near, 0.0)
        with ctx.workprec(200):
            upper, lower = found.log_upper(epsilon), found.log_lower(epsilon)
            assert bool(arb(lower) <= true + arb(1e-15))
            assert bool(true <= arb(upper) + arb(1e-15))
            assert upper - lower <= 1e-6
            bound = chernoff(steps, near.tilt)
            assert bool(true <= arb(bound.log_upper(epsilon)))


def test_the_rounding_of_a_step_counts_in_the_bound_of_chernoff() -> None:
    pair, count = AddRemovePair(1e-4, 1.5), 10**9
    part = Part(pair, pair.reach(1e-30), count)
    points = points_of(pair, part.interval, 2.0, 0.0)
    least = count * (points.log + float(points.weights @ points.errors))
    assert chernoff([part], 2.0).log_factor >= least


class _Line:
    """The curve ``delta = max(0, 1 - e^epsilon / 10)``, a line in t, which no release changes."""

    def log_upper(self, epsilon: float) -> float:
        return math.log(max(1.0 - math.exp(epsilon) / 10.0, 1e-300))

    log_lower = log_upper


def test_smoothing_gives_back_a_line() -> None:
    smoothed = Smoothed(_Line(), 1e-3, 0.01)
    for epsilon in (0.0, 1.0, 2.0):
        true = _Line().log_upper(epsilon)
        assert true - 1e-9 <= smoothed.log_lower(epsilon) <= true
        assert smoothed.log_upper(epsilon) == true
    # A loss beyond what is reached counts.
    assert Smoothed(_Line(), 1e-2, 0.01).log_lower(1.0) < _Line().log_upper(1.0) - 0.1
