"""Plans: the two questions are inverse to each other, and the errors are those of real noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import Budget, InvalidParameterError, plan_for_budget, plan_for_error, privacy_mu
from matrixdp.privacy import ErrorMeasure

measures = st.sampled_from(list(ErrorMeasure))
sizes = st.integers(1, 10_000)
scales = st.floats(1e-3, 1e3)


def test_one_release_gets_the_sensitivity_over_the_bound() -> None:
    plan = plan_for_budget(Budget(1.0, 1e-5), rows=3, columns=4, sensitivity=2.0)
    assert plan.noise_scale == pytest.approx(2.0 / privacy_mu(1.0, 1e-5), rel=1e-15)
    assert plan.error(ErrorMeasure.ENTRY) == plan.noise_scale
    assert plan.error(ErrorMeasure.FROBENIUS) == pytest.approx(math.sqrt(12) * plan.noise_scale)


@given(st.floats(0.01, 20), st.integers(1, 10**6), scales)
def test_releases_cost_the_root_of_their_number(
    epsilon: float, steps: int, sensitivity: float
) -> None:
    budget = Budget(epsilon, 1e-6)
    one = plan_for_budget(budget, rows=1, columns=1, sensitivity=sensitivity)
    many = plan_for_budget(budget, rows=1, columns=1, sensitivity=sensitivity, steps=steps)
    assert many.noise_scale == pytest.approx(one.noise_scale * math.sqrt(steps), rel=1e-14)
    # What the noise really costs is within the budget, in exact arithmetic.
    assert Fraction(sensitivity) / Fraction(many.noise_scale) <= Fraction(many.mu)
    assert steps * Fraction(many.mu) ** 2 <= budget.mu_squared


@given(measures, st.floats(0.01, 20), sizes, sizes, st.integers(1, 1000))
def test_a_plan_affords_its_own_error(
    measure: ErrorMeasure, epsilon: float, rows: int, columns: int, steps: int
) -> None:
    budget = Budget(epsilon, 1e-6)
    plan = plan_for_budget(budget, rows=rows, columns=columns, sensitivity=1.0, steps=steps)
    error = plan.error(measure)
    factor = measure.per_unit_noise(rows, columns)
    assert Fraction(error) >= Fraction(plan.noise_scale) * Fraction(factor)
    again = plan_for_error(
        error,
        measure,
        delta=1e-6,
        rows=rows,
        columns=columns,
        sensitivity=1.0,
        steps=steps,
    )
    assert again.budget <= budget
    # What the plan costs at this delta, entered again, pays for it.
    paid = Budget(again.epsilon_at(1e-6), 1e-6)
    assert again.budget <= paid <= Budget(epsilon * (1 + 1e-12), 1e-6)


@given(measures, scales, sizes, sizes, st.floats(0.1, 10), st.integers(1, 1000))
def test_the_two_questions_are_inverse(
    measure: ErrorMeasure, error: float, rows: int, columns: int, sensitivity: float, steps: int
) -> None:
    query = {"rows": rows, "columns": columns, "steps": steps}
    try:
        plan = plan_for_error(error, measure, delta=1e-6, sensitivity=sensitivity, **query)
    except InvalidParameterError:
        scale = error / measure.per_unit_noise(rows, columns)
        assert sensitivity / scale * math.sqrt(steps) > 0.99e4
        return
    assert plan.error(measure) <= error
    assert plan.error(measure) == pytest.approx(error, rel=1e-9)
    if 1e-3 < plan.budget.epsilon < 1e6:
        cheaper = Budget(plan.budget.epsilon * (1 - 1e-6), 1e-6)
        worse = plan_for_budget(cheaper, sensitivity=sensitivity, **query)
        assert worse.error(measure) > error


def test_the_errors_are_those_of_gaussian_noise() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((4000, 6, 50))
    frobenius = math.sqrt(float(np.mean(np.sum(noise**2, axis=(1, 2)))))
    assert ErrorMeasure.FROBENIUS.per_unit_noise(6, 50) == pytest.approx(frobenius, rel=0.01)
    # 4000 trials: the share held has standard error 0.0034, so 0.95 is message from 0.93 and 0.97.
    held = np.mean(np.abs(noise).max(axis=(1, 2)) <= ErrorMeasure.LARGEST.per_unit_noise(6, 50))
    assert abs(held - 0.95) < 0.012


def test_the_largest_error_of_enormous_matrices() -> None:
    # Against the asymptotic expansion sqrt(2 log N) for N = 1e16 entries, within its known error.
    factor = ErrorMeasure.LARGEST.per_unit_noise(10**8, 10**8)
    assert 8.0 < factor < 9.2


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"rows": 0}, "rows=0"),
        ({"columns": 1.5}, "columns=1.5"),
        ({"sensitivity": 0.0}, "sensitivity=0.0"),
        ({"sensitivity": math.inf}, "sensitivity=inf"),
        ({"sensitivity": math.nan}, "sensitivity=nan"),
        ({"steps": -1}, "steps=-1"),
        ({"budget": 1.0}, "budget is a float"),
        ({"sensitivity": 1e308}, "beyond the range"),
        ({"rows": 10**400}, "rows is an integer beyond"),
    ],
)
def test_bad_plans(changes: dict[str, object], name: str) -> None:
    good = {"budget": Budget(1.0, 1e-5), "rows": 1, "columns": 1, "sensitivity": 1.0}
    with pytest.raises(InvalidParameterError, match=name):
        plan_for_budget(**{**good, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "measure", "name"),
    [
        (0.0, ErrorMeasure.ENTRY, "error=0.0"),
        (-1.0, ErrorMeasure.ENTRY, "error=-1.0"),
        (1e-9, ErrorMeasure.ENTRY, "no protection"),
        (5e-324, ErrorMeasure.FROBENIUS, "leaves no noise"),
        (1.0, "median", "measure='median'"),
    ],
)
def test_bad_errors(error: float, measure: ErrorMeasure, name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        plan_for_error(error, measure, delta=1e-5, rows=9, columns=9, sensitivity=1.0)
