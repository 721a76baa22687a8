"""The references themselves: closed forms, other integrals, and the stored table made anew."""

import math

import pytest
from flint import arb, ctx
from scipy import integrate, stats

from reference.ball import curve
from reference.loss_composition import Part, Release, composed_delta, decay, generating_function
from reference.loss_peers import PeerBounds, peer_bounds
from reference.loss_table import enclosed, truths
from reference.loss_truth import Direction, Pair, delta_ball, one_step_delta

DIRECTIONS: tuple[Direction, ...] = ("remove", "add", "replace")
_PEERS = [each for each in peer_bounds() if each.steps == 1000]


def by_quadrature(pair: Pair, epsilon: float) -> float:
    """Return delta from its definition, the positive part of P - e^epsilon Q."""

    def excess(x: float) -> float:
        first, second = (
            stats.norm.pdf(x, move, pair.multiplier)
            if not mixed
            else (1 - pair.rate) * stats.norm.pdf(x, 0, pair.multiplier)
            + pair.rate * stats.norm.pdf(x, move, pair.multiplier)
            for mixed, move in (
                (pair.has_upper, 1 if pair.has_upper else 0),
                (pair.has_lower, -1 if pair.has_lower else 0),
            )
        )
        return float(max(0.0, first - math.exp(epsilon) * second))

    reach = 12 * pair.multiplier + 1
    return float(integrate.quad(excess, -reach, reach, limit=400, epsabs=1e-12)[0])


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("epsilon", [-0.2, 0.0, 0.1, 0.5, 2.0])
def test_one_step_is_the_integral_of_its_definition(direction: Direction, epsilon: float) -> None:
    pair = Pair(0.9, 0.4, direction)
    true = one_step_delta(pair, epsilon)
    assert by_quadrature(pair, epsilon) == pytest.approx(float(true.mid()), abs=1e-9)


@pytest.mark.parametrize(("direction", "mu"), [("remove", 2), ("add", 2), ("replace", 4)])
def test_whole_steps_have_the_gaussian_curve(direction: Direction, mu: int) -> None:
    found = composed_delta([(Pair(1.0, 1.0, direction), 4)], 2.0)
    with ctx.workprec(200):
        assert found.overlaps(curve(arb(mu), arb(2.0)))
        assert bool(found.rad() < 1e-15)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_two_parts_are_an_integral_over_the_first(direction: Direction) -> None:
    # Given the loss of a Gaussian release, the rest of epsilon is left to the step.
    pair, mu, epsilon = Pair(0.8, 0.3, direction), 0.5, 0.4

    def given(x: float) -> float:
        loss = mu * x + mu * mu / 2
        return float(stats.norm.pdf(x) * float(delta_ball(pair, arb(epsilon - loss)).mid()))

    with ctx.workprec(100):
        apart, _ = integrate.quad(given, -10, 10, limit=200)
    together = composed_delta([(pair, 1), (Release(mu), 1)], epsilon)
    assert apart == pytest.approx(float(together.mid()), rel=1e-7)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_decay_bounds_the_generating_function(direction: Direction) -> None:
    pair, theta, spacing, count = Pair(0.8, 0.3, direction), 1.5, arb(4), 6
    with ctx.workprec(160):
        values = generating_function(pair, theta, spacing, count)
        for position, value in enumerate(values):
            assert bool(abs(value) <= decay(pair, theta, position * spacing))


@pytest.mark.parametrize("parts", ["2 0.3 3", "1 0.3 12", "1 0.2 5, 2 0.05 7, 0.3"])
def test_the_stored_table_is_what_is_computed(parts: str) -> None:
    row = next(each for each in truths() if each.parts == parts)
    again = enclosed(row.relation, row.parts, row.epsilon)
    with ctx.workprec(200):
        assert (
            arb(row.lower).union(arb(row.upper)).overlaps(arb(again.lower).union(arb(again.upper)))
        )


@pytest.mark.thorough
@pytest.mark.parametrize("peer", _PEERS, ids=[each.name for each in _PEERS])
def test_other_libraries_agree(peer: PeerBounds) -> None:
    direction: Direction = "remove" if peer.relation == "add-remove" else "replace"
    parts: list[Part] = [(Pair(peer.multiplier, peer.rate, direction), peer.steps)]
    assert bool(composed_delta(parts, peer.upper) <= peer.delta)
    assert bool(composed_delta(parts, peer.lower) >= peer.delta)
