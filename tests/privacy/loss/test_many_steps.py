"""Lists of steps: every interval encloses what ball arithmetic and other libraries enclose."""

from typing import Any

import pytest
from flint import arb, ctx

from reference.loss_checks import account_of, encloses
from reference.loss_peers import PeerBounds, peer_bounds
from reference.loss_table import Truth, truths

_MANY = 50_000  # steps, above which an account takes a second


def _cases() -> list[Any]:
    """Return the rows of the table, those that take longest only in the thorough run."""
    return [
        pytest.param(
            each,
            id=f"{each.relation}: {each.parts}: {each.epsilon:g}",
            marks=[pytest.mark.thorough] if sum(n for *_, n in each.steps()) > _MANY else [],
        )
        for each in truths()
    ]


_TRUTHS = _cases()
_PEERS = peer_bounds()


@pytest.mark.parametrize("truth", _TRUTHS)
def test_delta(truth: Truth) -> None:
    with ctx.workprec(200):
        true = arb(truth.lower).union(arb(truth.upper))
        found = account_of(truth.relation, truth.steps(), truth.releases()).delta_at(truth.epsilon)
        assert encloses(found, true)


@pytest.mark.parametrize("truth", _TRUTHS)
def test_epsilon(truth: Truth) -> None:
    account = account_of(truth.relation, truth.steps(), truth.releases())
    below, above = float(truth.lower), float(truth.upper)
    lower, upper = account.epsilon_at(below)
    # Bounds that say nothing would enclose everything.
    assert upper - lower <= 1e-2 * upper
    if above > below * (1 + 1e-14):  # some enclosures have fewer digits than a double
        lower, _ = account.epsilon_at(above)
    # A delta rounded to a double moves epsilon by less than this, and by far less than a width.
    assert lower * (1 - 1e-12) <= truth.epsilon <= upper * (1 + 1e-12)


def test_the_plan_that_others_are_measured_on_is_narrow() -> None:
    lower, upper = account_of("add-remove", [(1.0, 0.01, 1000)]).epsilon_at(1e-5)
    assert 0.0 < upper - lower <= 1e-4 * lower
    assert lower == pytest.approx(1.8282, abs=2e-4)


@pytest.mark.parametrize("peer", _PEERS, ids=[each.name for each in _PEERS])
def test_other_libraries_bounds_overlap(peer: PeerBounds) -> None:
    plan = (peer.multiplier, peer.rate, peer.steps)
    lower, upper = account_of(peer.relation, [plan]).epsilon_at(peer.delta)
    assert lower <= peer.upper
    assert upper >= peer.lower


def test_the_order_and_the_grouping_of_steps_do_not_matter() -> None:
    steps = [(1.0, 0.2, 5), (2.0, 0.05, 7)]
    together = account_of("add-remove", steps, [0.3, 0.4]).delta_at(1.0)
    other = account_of("add-remove", [(2.0, 0.05, 7), (1.0, 0.2, 2), (1.0, 0.2, 3)], [0.5])
    apart = other.delta_at(1.0)
    assert together.lower <= apart.upper
    assert apart.lower <= together.upper
