"""Soft thresholds, and the estimate of the error that chooses them."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp import (
    Diagonal,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.postprocess import EntryThreshold, SingularValueThreshold
from matrixdp.postprocess.thresholds import best_threshold, estimated_risk

FloatArray = NDArray[np.float64]


def values_of(matrix: FloatArray, *, symmetric: bool) -> FloatArray:
    """Return the values that the estimate takes, by numpy."""
    if not symmetric:
        return np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)
    values = np.linalg.eigvalsh(matrix)
    return np.asarray(values[np.argsort(-np.abs(values))])


def directions(shape: tuple[int, int], *, symmetric: bool) -> list[FloatArray]:
    """Return an orthonormal basis of the matrices that the noise is spread over."""
    basis = []
    for row, column in itertools.product(range(shape[0]), range(shape[1])):
        if symmetric and row > column:
            continue
        one = np.zeros(shape)
        one[row, column] = 1.0
        if symmetric:
            one = one + one.T
        basis.append(one / np.linalg.norm(one))
    return basis


def divergence(
    function: Callable[[FloatArray], FloatArray], at: FloatArray, basis: list[FloatArray]
) -> float:
    step = 1e-6
    return sum(
        float(np.sum(one * (function(at + step * one) - function(at - step * one)))) / (2 * step)
        for one in basis
    )


@pytest.mark.parametrize(
    ("shape", "symmetric"), [((3, 5), False), ((5, 2), False), ((4, 4), False), ((5, 5), True)]
)
@pytest.mark.parametrize("threshold", [0.3, 1.1, 2.5])
def test_the_estimate_is_steins(shape: tuple[int, int], threshold: float, symmetric: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(3)
    covariance = (SymmetricIsotropic if symmetric else Isotropic)(1.0)
    matrix = 1.5 * covariance.colour(rng.standard_normal(shape))
    step = SingularValueThreshold(threshold)
    basis = directions(shape, symmetric=symmetric)
    found = estimated_risk(
        values_of(matrix, symmetric=symmetric), threshold, shape, symmetric=symmetric
    )
    moved = float(np.sum(np.square(step.apply(matrix, covariance) - matrix)))
    slope = divergence(lambda at: step.apply(at, covariance), matrix, basis)
    assert found == pytest.approx(moved - len(basis) + 2 * slope, abs=1e-5)


@pytest.mark.parametrize("covariance", [Isotropic(0.5), SymmetricIsotropic(0.5)])
def test_the_estimate_is_unbiased(covariance: Isotropic | SymmetricIsotropic) -> None:
    rng, shape = np.random.default_rng(4), (6, 6)
    symmetric = isinstance(covariance, SymmetricIsotropic)
    truth = np.diag([3.0, -2.0, 0.0, 0.0, 0.0, 0.0])
    step = SingularValueThreshold(0.8)
    errors, estimates = [], []
    for _ in range(600):
        noisy = truth + covariance.colour(rng.standard_normal(shape))
        errors.append(float(np.sum(np.square(step.apply(noisy, covariance) - truth))))
        scaled = values_of(noisy, symmetric=symmetric) / 0.5
        estimates.append(0.25 * estimated_risk(scaled, 1.6, shape, symmetric=symmetric))
    spread = np.std(np.subtract(errors, estimates)) / np.sqrt(600)
    assert abs(np.mean(errors) - np.mean(estimates)) < 4 * spread
    # Ten per cent off would be seen.
    assert 0.1 * np.mean(errors) > 4 * spread


@pytest.mark.parametrize(
    ("shape", "symmetric"), [((8, 12), False), ((7, 7), False), ((9, 9), True), ((1, 1), False)]
)
def test_the_best_threshold_is_best(shape: tuple[int, int], symmetric: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(5)
    covariance = (SymmetricIsotropic if symmetric else Isotropic)(1.0)
    for size in (0.0, 2.0, 30.0):
        matrix = size * np.eye(*shape, k=0) + covariance.colour(rng.standard_normal(shape))
        values = values_of(matrix, symmetric=symmetric)
        best = best_threshold(values, shape, symmetric=symmetric)
        least = estimated_risk(values, best, shape, symmetric=symmetric)
        grid = np.linspace(1e-9, 1.1 * abs(values[0]), 500)
        others = [estimated_risk(values, t, shape, symmetric=symmetric) for t in grid]
        assert least <= min(others) + 1e-9


@pytest.mark.parametrize("values", [[2.5, 2.5, 2.5], [9.0, 1.5, 1.5], [8.0, 8.0, 0.5], [4.0, 0, 0]])
@pytest.mark.parametrize("symmetric", [False, True])
def test_equal_singular_values_are_no_trouble(values: list[float], symmetric: bool) -> None:  # noqa: FBT001
    equal = np.array(values)
    apart = equal + np.array([2e-9, 1e-9, 0.0])
    best = best_threshold(equal, (3, 3), symmetric=symmetric)
    assert best == pytest.approx(best_threshold(apart, (3, 3), symmetric=symmetric), abs=1e-6)
    risk = estimated_risk(equal, best, (3, 3), symmetric=symmetric)
    others = np.linspace(1e-3, 10.0, 300)
    assert risk <= min(estimated_risk(equal, t, (3, 3), symmetric=symmetric) for t in others) + 1e-9


def test_a_matrix_of_zeros_stays_one() -> None:
    assert best_threshold(np.zeros(3), (3, 4), symmetric=False) == 0.0
    found = SingularValueThreshold().apply(np.zeros((3, 4)), Isotropic(1.0))
    assert (found == 0.0).all()


def test_thresholds_that_follow_from_the_noise_help_where_there_is_something_to_gain() -> None:
    rng, covariance = np.random.default_rng(6), Isotropic(2.0)
    truth = np.zeros((60, 60))
    truth[:3, :3] = 100.0
    noisy = truth + covariance.colour(rng.standard_normal((60, 60)))
    before = np.linalg.norm(noisy - truth)
    for step, share in ((SingularValueThreshold(), 0.4), (EntryThreshold(), 0.25)):
        assert np.linalg.norm(step.apply(noisy, covariance) - truth) < share * before
    # The scale of the answer is that of the noise.
    found = SingularValueThreshold().apply(1e-200 * noisy, Isotropic(2e-200))
    np.testing.assert_allclose(
        1e200 * found, SingularValueThreshold().apply(noisy, covariance), atol=1e-6
    )


def test_entries_have_thresholds_of_their_own() -> None:
    scales = np.array([[1.0, 10.0], [3.0, 5.0]])
    value = 4.0 * scales * np.array([[1.0, -1.0], [0.1, -0.2]])
    found = EntryThreshold().apply(value, Diagonal(scales))
    level = np.sqrt(2 * np.log(4))
    np.testing.assert_allclose(found, [[4 - level, -10 * (4 - level)], [0.0, 0.0]], rtol=1e-12)
    correlated = Kronecker(np.array([[2.0, 1.0], [1.0, 2.0]]), np.eye(2))
    assert (EntryThreshold().apply(np.ones((2, 2)), correlated) == 0.0).all()


def test_a_given_threshold_needs_no_noise() -> None:
    assert not SingularValueThreshold(1.0).needs_noise
    assert not EntryThreshold(1.0).needs_noise
    assert SingularValueThreshold().needs_noise
    assert EntryThreshold().needs_noise
    SingularValueThreshold(1.0).check((2, 2), Diagonal([[1.0, 2.0]]))
    with pytest.raises(InvalidParameterError, match="without a threshold needs"):
        SingularValueThreshold().check((2, 2), Diagonal([[1.0, 2.0]]))


@pytest.mark.parametrize("kind", [SingularValueThreshold, EntryThreshold])
@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf"), True, "1"])
def test_bad_thresholds_are_refused(
    kind: type[SingularValueThreshold | EntryThreshold], wrong: float
) -> None:
    with pytest.raises(InvalidParameterError, match=r"^threshold"):
        kind(wrong)
