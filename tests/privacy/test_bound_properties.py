"""Properties that the privacy curve must have, whatever the numbers."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matrixdp import (
    InvalidParameterError,
    MatrixDPError,
    privacy_delta,
    privacy_epsilon,
    privacy_mu,
)
from matrixdp.errors import CalibrationError, ShapeError
from matrixdp.privacy import composed_mu, solve
from reference import domain

epsilons = st.one_of(
    st.floats(0, domain.LARGEST_EPSILON), st.floats(-300, 6).map(lambda power: 10.0**power)
)
deltas = st.one_of(
    st.floats(domain.SMALLEST_DELTA, domain.LARGEST_DELTA),
    st.floats(-307, -1).map(lambda power: 10.0**power),
    st.floats(-11.9, -1).map(lambda power: 1.0 - 10.0**power),
)
mus = st.one_of(st.floats(0, domain.LARGEST_MU), st.floats(-300, 4).map(lambda power: 10.0**power))
# What two neighbouring evaluations may differ by, each being off by up to its margin.
SLACK = 1e-14


@given(epsilons, deltas, st.floats(1e-9, 10))
def test_bound_increases_in_epsilon(epsilon: float, delta: float, more: float) -> None:
    larger = min(epsilon * (1 + more) + 1e-300, domain.LARGEST_EPSILON)
    assert privacy_mu(larger, delta) >= privacy_mu(epsilon, delta) * (1 - SLACK)


@given(epsilons, deltas, st.floats(0.0, 1.0))
def test_bound_increases_in_delta(epsilon: float, delta: float, part: float) -> None:
    larger = min(delta + part * (domain.LARGEST_DELTA - delta), domain.LARGEST_DELTA)
    assert privacy_mu(epsilon, larger) >= privacy_mu(epsilon, delta) * (1 - SLACK)


@given(mus, epsilons, st.floats(1e-6, 10))
def test_delta_increases_in_mu_and_decreases_in_epsilon(
    mu: float, epsilon: float, more: float
) -> None:
    here = privacy_delta(mu, epsilon)
    wider = min(mu * (1 + more), domain.LARGEST_MU)
    later = min(epsilon * (1 + more), domain.LARGEST_EPSILON)
    assert privacy_delta(wider, epsilon) >= here * (1 - 1e-11)
    assert privacy_delta(mu, later) <= here * (1 + 1e-11) + math.ulp(0.0)


@given(mus, deltas)
def test_a_bound_taken_at_an_epsilon_never_falls_short_of_its_mu(mu: float, delta: float) -> None:
    epsilon = privacy_epsilon(mu, delta)
    assume(0 < epsilon <= domain.LARGEST_EPSILON)
    again = privacy_mu(epsilon, delta)
    assert again >= mu
    # ... nor does it exceed it by more than epsilon's error, which matters only near epsilon = 0.
    if epsilon > 1e-3 * mu:
        assert again <= mu * (1 + 1e-10)


@given(mus, epsilons)
def test_a_bound_taken_at_a_delta_never_falls_short_of_its_mu(mu: float, epsilon: float) -> None:
    delta = privacy_delta(mu, epsilon)
    assume(domain.SMALLEST_DELTA <= delta <= domain.LARGEST_DELTA)
    again = privacy_mu(epsilon, delta)
    assert mu <= again
    if delta < 0.999:
        assert again <= mu * (1 + 1e-10)


@given(epsilons, deltas)
def test_delta_at_the_bound_is_the_delta(epsilon: float, delta: float) -> None:
    mu = privacy_mu(epsilon, delta)
    # The condition number of delta is below 1e7 in the whole domain.
    assert privacy_delta(mu, epsilon) == pytest.approx(delta, rel=3e-7)


@given(st.lists(st.floats(0, 5), max_size=20), st.lists(st.floats(0, 5), max_size=20))
def test_composition_adds_squares_in_any_grouping(first: list[float], second: list[float]) -> None:
    whole = composed_mu(first + second)
    assert whole == pytest.approx(math.hypot(*first, *second), rel=1e-14)
    grouped = composed_mu([composed_mu(first), composed_mu(second)])
    assert whole <= grouped <= whole * (1 + 1e-14) + 8 * math.ulp(0.0)
    assert composed_mu(second + first) == whole


@settings(max_examples=30)
@given(st.lists(st.tuples(epsilons, deltas), min_size=1, max_size=50))
def test_arrays_and_numbers_agree(points: list[tuple[float, float]]) -> None:
    columns = np.array(points).T
    together = np.asarray(privacy_mu(*columns))
    one_by_one = [privacy_mu(*point) for point in points]
    np.testing.assert_allclose(together, one_by_one, rtol=3e-15)


def test_arrays_broadcast_over_many_blocks() -> None:
    grid_epsilon, grid_delta = np.geomspace(1e-3, 10, 150), np.geomspace(1e-12, 0.9, 120)
    table = np.asarray(privacy_mu(grid_epsilon[:, None], grid_delta[None, :]))
    assert table.shape == (150, 120)
    assert np.all(np.diff(table, axis=0) > 0)
    assert np.all(np.diff(table, axis=1) > 0)
    np.testing.assert_allclose(
        table[7, 11], privacy_mu(grid_epsilon[7].item(), grid_delta[11].item()), rtol=3e-15
    )


def test_shapes_and_types_of_results() -> None:
    assert type(privacy_mu(1, 1e-5)) is float
    assert type(privacy_mu(np.float64(1), np.float32(0.5))) is float
    assert type(privacy_mu(np.array(1.0), 1e-5)) is float
    assert type(privacy_delta(1, 1)) is float
    assert type(privacy_epsilon(np.int64(1), 1e-5)) is float
    assert np.asarray(privacy_mu([1, 2], 1e-5)).shape == (2,)
    assert np.asarray(privacy_mu([], 1e-5)).shape == (0,)
    assert np.asarray(privacy_epsilon(np.ones((2, 0, 3)), 1e-5)).shape == (2, 0, 3)
    np.testing.assert_array_equal(
        privacy_mu(np.array([1, 2]), 1e-5), privacy_mu(np.array([1.0, 2.0]), 1e-5)
    )


FUNCTIONS: dict[Callable[..., Any], dict[str, object]] = {
    privacy_mu: {"epsilon": 1.0, "delta": 1e-5},
    privacy_delta: {"mu": 1.0, "epsilon": 1.0},
    privacy_epsilon: {"mu": 1.0, "delta": 1e-5},
}
BAD_NUMBERS = [math.nan, math.inf, -math.inf, -1.0, -1e-300, 1e300, 10**400, 10**5000]
BAD_KINDS = ["1", None, 1j, True]
BAD_ARRAYS = [
    np.array([0.5, math.nan]),
    np.array([[0.5, -1.0]]),
    np.array(["0.5"]),
    np.array([0.5 + 0j]),
    np.array([True]),
    [True, 0.5],
    [[0.5], [np.True_]],
    np.array([0.5], dtype=object),
    np.array([0.5], dtype=np.longdouble),
    np.ma.masked_array([0.5, 0.6], mask=[True, False]),
    [[0.5], [0.5, 0.5]],
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("number", range(len(BAD_NUMBERS) + len(BAD_KINDS) + len(BAD_ARRAYS)))
def test_bad_arguments_are_named(function: Callable[..., Any], number: int) -> None:
    bad = [*BAD_NUMBERS, *BAD_KINDS, *BAD_ARRAYS][number]
    for name in FUNCTIONS[function]:
        with pytest.raises((InvalidParameterError, ShapeError), match=name):
            function(**{**FUNCTIONS[function], name: bad})


@pytest.mark.parametrize(
    "delta", [0.0, 1.0, 1e-310, math.nextafter(domain.LARGEST_DELTA, 1), np.array([1e-5, 0.0])]
)
def test_delta_outside_its_domain(delta: float) -> None:
    for function in (privacy_mu, privacy_epsilon):
        with pytest.raises(InvalidParameterError, match="delta="):
            function(1.0, delta)


def test_a_bad_entry_is_located() -> None:
    with pytest.raises(InvalidParameterError, match=r"epsilon=-2\.0 at index \(1, 0\)"):
        privacy_mu([[1.0], [-2.0]], 1e-5)


def test_only_a_list_of_mus_is_composed() -> None:
    with pytest.raises(InvalidParameterError, match="mus=5"):
        composed_mu(5)  # type: ignore[arg-type]


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ShapeError, match=r"\(2,\) and delta of shape \(3,\)"):
        privacy_mu([1.0, 2.0], [1e-5, 1e-6, 1e-7])
    assert issubclass(ShapeError, ValueError)
    assert issubclass(ShapeError, MatrixDPError)


def test_no_number_is_returned_without_convergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_MOST_STEPS", 2)
    with pytest.raises(CalibrationError, match="did not converge"):
        privacy_mu(1e-6, 1e-10)


def test_few_steps_suffice_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solve, "_MOST_STEPS", 7)
    points = domain.budgets(20_000, seed=3) + domain.corners()
    assert np.all(np.asarray(privacy_mu(*np.array(points).T)) > 0)
    mechanisms = np.array(domain.mechanism_points(20_000, seed=3)).T
    assert np.all(np.asarray(privacy_epsilon(*mechanisms)) >= 0)
