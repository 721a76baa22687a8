"""Theorems 1 to 3 against dense algebra."""

import math
from functools import partial

import numpy as np
import pytest

from matrixdp import (
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.errors import ShapeError
from matrixdp.sensitivity import protects_ball, protects_difference, protects_repeated
from reference import dense

RNG = np.random.default_rng(3)
BUDGET = Budget(1.0, 1e-5)


def random_noise(rows: int, columns: int) -> Kronecker:
    return Kronecker(dense.random_definite(rows, RNG), dense.random_definite(columns, RNG))


@pytest.mark.parametrize("shape", [(2, 5), (5, 2), (3, 3), (1, 4)])
def test_the_verdict_on_a_difference_bounds_its_whitened_norm(shape: tuple[int, int]) -> None:
    for _ in range(50):
        noise, difference = random_noise(*shape), RNG.standard_normal(shape)
        verdict = protects_difference(difference, noise, BUDGET)
        assert verdict.mu >= np.linalg.norm(noise.whiten(difference)) * (1 - 1e-12)
        values = np.linalg.svd(difference, compute_uv=False)
        rows = np.sort(np.linalg.eigvalsh(np.asarray(noise.rows)))
        columns = np.sort(np.linalg.eigvalsh(np.asarray(noise.columns)))
        literal = sum(values[i] ** 2 / (rows[i] * columns[i]) for i in range(min(shape)))
        assert verdict.mu == pytest.approx(math.sqrt(literal), rel=1e-9)


def test_the_verdict_on_a_difference_is_attained_when_directions_align() -> None:
    noise = Kronecker(np.diag([4.0, 1.0]), np.diag([9.0, 1.0, 16.0]))
    difference = np.array([[0.0, 0.0, 0.0], [0.0, 0.7, 0.0]])  # the weakest row and column
    assert protects_difference(difference, noise, BUDGET).mu == pytest.approx(0.7)
    assert np.linalg.norm(noise.whiten(difference)) == pytest.approx(0.7)


def test_the_verdict_on_a_ball_is_its_radius() -> None:
    for _ in range(20):
        noise = random_noise(3, 4)
        verdict = protects_ball(noise, 1.5, BUDGET)
        radius = FrobeniusBall(1.5, neighbouring="replace").radius(noise).value
        # The radius leaves a margin for the rounding of other machines; the theorem needs none.
        assert verdict.mu <= radius == pytest.approx(verdict.mu, rel=1e-12)
        tight = noise.scaled(verdict.shortfall * (1 + 1e-12))
        assert protects_ball(tight, 1.5, BUDGET).holds
        assert not protects_ball(tight.scaled(0.999), 1.5, BUDGET).holds


def test_repeated_releases_need_root_t_more_noise() -> None:
    noise = random_noise(3, 4)
    once = protects_ball(noise, 1.0, BUDGET).shortfall
    assert protects_repeated(noise, 1.0, BUDGET, steps=49).shortfall == pytest.approx(7 * once)
    assert protects_repeated(noise, 1.0, BUDGET, steps=1) == protects_ball(noise, 1.0, BUDGET)


def test_nothing_changed_costs_nothing() -> None:
    verdict = protects_difference(np.zeros((2, 2)), random_noise(2, 2), BUDGET)
    assert verdict.holds
    assert verdict.mu < 1e-300 or verdict.mu == 0.0


def test_bad_input() -> None:
    noise = random_noise(2, 3)
    with pytest.raises(ShapeError, match="rows is a covariance of"):
        protects_difference(np.ones((3, 2)), noise, BUDGET)
    with pytest.raises(InvalidParameterError, match="difference"):
        protects_difference(np.full((2, 3), np.nan), noise, BUDGET)
    with pytest.raises(InvalidParameterError, match=r"sensitivity=0\.0"):
        protects_ball(noise, 0.0, BUDGET)
    with pytest.raises(InvalidParameterError, match="steps=0"):
        protects_repeated(noise, 1.0, BUDGET, steps=0)
    for other in (Isotropic(9.0), SymmetricIsotropic(9.0), "noise"):
        with pytest.raises(InvalidParameterError, match="covariance is a"):
            protects_ball(other, 1.0, BUDGET)  # type: ignore[arg-type]
        with pytest.raises(InvalidParameterError, match="covariance is a"):
            protects_difference(np.ones((2, 3)), other, BUDGET)  # type: ignore[arg-type]
    for judge in (protects_ball, partial(protects_repeated, steps=2)):
        with pytest.raises(InvalidParameterError, match="budget is a int"):
            judge(noise, 1.0, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="budget is a int"):
        protects_difference(np.ones((2, 3)), noise, 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="range of a float"):
        protects_difference(1e308 * np.eye(2), Kronecker(np.eye(2), np.eye(2)), BUDGET)
    tiny = protects_difference([[5e-324]], Kronecker([[1e100]], [[1.0]]), BUDGET)
    assert 0.0 < tiny.mu < 1e-300
