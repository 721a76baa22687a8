"""The interior-point method on a problem whose solution is known."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.solve.interior_point import maximise

COSTS = np.array([1.0, 4.0, 0.01, 9.0])


class Separate(NamedTuple):
    """Least ``sum c_i / l_i`` with ``E l <= 1``."""

    constraints: FloatArray
    weights: FloatArray

    @property
    def pulled(self) -> FloatArray:
        return np.asarray(self.constraints.T @ self.weights)

    @property
    def constraint_values(self) -> FloatArray:
        return np.asarray(self.constraints @ np.sqrt(COSTS / self.pulled))

    @property
    def bound(self) -> float:
        return float(np.sum(np.sqrt(COSTS * self.pulled)) ** 2 / np.sum(self.weights))

    @property
    def value(self) -> float:
        return float(np.sum(np.sqrt(COSTS * self.pulled)) * np.max(self.constraint_values))

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        slopes = np.sqrt(COSTS / self.pulled) / (2.0 * self.pulled)

        def image(direction: FloatArray) -> FloatArray:
            inner = slopes * (self.constraints.T @ (self.weights * direction))
            return np.asarray(self.weights * (self.constraints @ inner))

        return image


def solved(constraints: FloatArray, start: FloatArray, target: float = 1e-10) -> Separate:
    reported: list[float] = []
    found = maximise(
        lambda weights: Separate(constraints, weights),
        start,
        target_gap=target,
        smallest_weight=1e-25,
        progress=lambda _, gap: reported.append(gap),
    )
    assert reported == sorted(reported, reverse=True)
    assert 0.0 <= found.gap <= target
    return found.primal


def test_bounds_on_each_number_alone() -> None:
    found = solved(np.eye(4), np.ones(4))
    np.testing.assert_allclose(found.weights / found.weights[0], COSTS / COSTS[0], rtol=1e-4)
    assert found.value == pytest.approx(COSTS.sum(), rel=1e-9)


def test_a_bound_on_the_sum() -> None:
    found = solved(np.ones((1, 4)), np.ones(1))
    assert found.value == pytest.approx(np.sum(np.sqrt(COSTS)) ** 2, rel=1e-9)


def test_constraints_that_never_bind_lose_their_weight() -> None:
    constraints = np.concatenate([np.eye(4), 0.5 * np.eye(4), np.full((1, 4), 0.1)])
    found = solved(constraints, np.ones(9))
    assert found.value == pytest.approx(COSTS.sum(), rel=1e-9)
    assert found.weights[4:].max() < 1e-6 * found.weights.max()


def test_what_takes_no_part_stays_out() -> None:
    start = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    constraints = np.concatenate([np.eye(4), 10.0 * np.eye(1, 4)])
    assert solved(constraints, start, target=np.inf).weights[4] == 0.0
