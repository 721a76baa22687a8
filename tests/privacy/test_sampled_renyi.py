"""Rényi divergences of sampled steps, against ball arithmetic at whole and at other orders."""

import itertools
import math

import pytest
from flint import acb, arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp.privacy.renyi import LARGEST_ORDER, sampled_divergence


@pytest.fixture(autouse=True)
def _bits() -> None:
    ctx.prec = 400


def at_whole_order(multiplier: float, rate: float, order: int) -> arb:
    """Return log(A) / (alpha - 1) by the binomial sum of Mironov, Talwar and Zhang, less its 1."""
    spread, share = 2 * arb(multiplier) ** 2, arb(rate)
    weight, total = (1 - share) ** order, arb(0)
    for k in range(order + 1):
        total += weight * (arb(k * (k - 1)) / spread).expm1()
        weight *= share / (1 - share) * (order - k) / (k + 1)
    return total.log1p() / (order - 1)


def at_any_order(multiplier: float, rate: float, order: float) -> arb:
    """Return the same by rigorous integration of the definition, A = E[(1 + q w)^alpha]."""
    scale, share, power = arb(multiplier), arb(rate), arb(order)

    def integrand(point: acb, _: bool) -> acb:  # noqa: FBT001
        growth = share * ((point / scale - 1 / (2 * scale * scale)).exp() - 1)
        return (-(point * point) / 2).exp() * ((1 + growth) ** power - 1 - power * growth)

    first, last, pieces = -30.0, order / multiplier + 30.0, 40
    edges = [acb(first + (last - first) * piece / pieces) for piece in range(pieces + 1)]
    total = acb(0)
    for left, right in itertools.pairwise(edges):
        total += acb.integral(
            integrand, left, right, rel_tol=arb(2) ** -100, abs_tol=arb(2) ** -500
        )
    return (total.real / (2 * arb.pi()).sqrt()).log1p() / (power - 1)


def is_just_above(found: float, true: arb) -> bool:
    """Return whether it is rounded up, by the part in 1e9 that is said and not much else."""
    assert bool(true.rad() < abs(true.mid()) * arb(1e-20))
    return bool(arb(found) > true * (1 + arb(9e-10))) and bool(arb(found) < true * (1 + arb(2e-9)))


def powers(lowest: float, highest: float) -> st.SearchStrategy[float]:
    return st.floats(lowest, highest).map(lambda power: 10.0**power)


@settings(max_examples=60)
@given(powers(-0.5, 4), powers(-8, -0.001), powers(0.31, 2.7).map(round))
def test_whole_orders(multiplier: float, rate: float, order: int) -> None:
    found = sampled_divergence(multiplier, rate, float(order))
    assert is_just_above(found, at_whole_order(multiplier, rate, order))


@settings(max_examples=15, deadline=None)
@given(powers(-0.9, 2), powers(-5, -0.001), powers(-2, 1.5))
def test_other_orders(multiplier: float, rate: float, excess: float) -> None:
    found = sampled_divergence(multiplier, rate, 1.0 + excess)
    assert is_just_above(found, at_any_order(multiplier, rate, 1.0 + excess))


@pytest.mark.parametrize(
    ("multiplier", "rate", "order"),
    [
        (1e5, 0.01, 20_000),  # orders as large as an epsilon of 0.001 needs
        (300.0, 0.02, 20_000),
        (1e10, 0.9, 1000),  # a divergence of 4e-18: nothing beside 1
        (5.0, 1.0 - 1e-15, 50),  # all but unsampled
        (1.0, 1e-150, 4),
        (0.05, 1e-8, 2),
        (0.06, 0.999, 20),  # an A beyond any float
    ],
)
def test_extremes(multiplier: float, rate: float, order: int) -> None:
    found = sampled_divergence(multiplier, rate, float(order))
    assert is_just_above(found, at_whole_order(multiplier, rate, order))


def test_what_floats_cannot_hold_is_not_below_the_truth() -> None:
    assert sampled_divergence(1.0, 1e-320, 4.0) == pytest.approx(2.0**-1000)
    assert sampled_divergence(1.0, 0.1, LARGEST_ORDER) == math.inf


# dp-accounting 0.6.0, rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian.
@pytest.mark.parametrize(
    ("multiplier", "rate", "order", "theirs"),
    [
        (1.0, 0.01, 8.0, 0.000893643907606041),
        (1.0, 0.01, 8.3, 0.0009892877560746564),
        (4.0, 0.2, 30.0, 0.05700185055400558),
        (0.7, 0.001, 4.0, 1.4042048652124559e-05),
    ],
)
def test_another_library_has_the_same_where_it_has_digits(
    multiplier: float, rate: float, order: float, theirs: float
) -> None:
    assert sampled_divergence(multiplier, rate, order) == pytest.approx(theirs, rel=1e-6)


def test_where_another_library_is_below_the_truth() -> None:
    # It has lost a thousandth of its digits here; this is what it returns, from the same source.
    quiet = (9448.967504511733, 0.00014403654291782658, 443)
    theirs = 5.141206904141377e-14
    assert bool(arb(theirs) < at_whole_order(*quiet) * (1 - arb(1e-3)))
    assert is_just_above(sampled_divergence(*quiet), at_whole_order(*quiet))
