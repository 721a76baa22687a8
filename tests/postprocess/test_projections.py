"""Projections: members of their sets, nearest of all, idempotent and never expanding."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp import InvalidParameterError, Isotropic
from matrixdp.errors import CalibrationError, ShapeError
from matrixdp.postprocess import Clamp, CorrelationMatrix, PositiveSemidefinite, Simplex, Step

FloatArray = NDArray[np.float64]
NOISE = Isotropic(1.0)
SIDE = 5
LOWER = np.linspace(-1.0, 0.5, SIDE)[:, None]


def random_positive(rng: np.random.Generator) -> FloatArray:
    root = rng.standard_normal((SIDE, rng.integers(1, SIDE + 1)))
    return np.asarray(rng.exponential() * root @ root.T)


def random_correlation(rng: np.random.Generator) -> FloatArray:
    root = rng.standard_normal((SIDE, rng.integers(1, SIDE + 1)))
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    return np.asarray(root @ root.T)


def random_rows(rng: np.random.Generator) -> FloatArray:
    return 4.0 * rng.dirichlet(np.full(SIDE, 0.3), size=SIDE)


def random_table(rng: np.random.Generator) -> FloatArray:
    return 4.0 * rng.dirichlet(np.full(SIDE * SIDE, 0.1)).reshape(SIDE, SIDE)


def random_between(rng: np.random.Generator) -> FloatArray:
    return LOWER + (2.0 - LOWER) * rng.random((SIDE, SIDE))


# Each step, and members of the set that it projects on.
CASES: dict[str, tuple[Step, Callable[[np.random.Generator], FloatArray]]] = {
    "semidefinite": (PositiveSemidefinite(), random_positive),
    "correlation": (CorrelationMatrix(), random_correlation),
    "simplex": (Simplex(4.0), random_table),
    "rows": (Simplex(4.0, over="rows"), random_rows),
    "clamp": (Clamp(LOWER, 2.0), random_between),
}
cases = pytest.mark.parametrize("name", CASES)


@cases
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([0.01, 1.0, 30.0]))
def test_projections_are_the_nearest(name: str, seed: int, size: float) -> None:
    step, member = CASES[name]
    rng = np.random.default_rng(seed)
    start, other = size * rng.standard_normal((2, SIDE, SIDE))
    found = step.apply(start, NOISE)
    slack = 1e-8 * max(size, 1.0) ** 2
    # The variational inequality, which holds for the nearest member of a convex set and no other.
    for _ in range(20):
        assert np.sum((start - found) * (member(rng) - found)) <= slack
    # Never further apart than before, and a member stays what it is.
    moved = np.linalg.norm(step.apply(other, NOISE) - found)
    assert moved <= np.linalg.norm(other - start) + slack
    np.testing.assert_allclose(step.apply(found, NOISE), found, atol=slack)
    inside = member(rng)
    np.testing.assert_allclose(step.apply(inside, NOISE), inside, atol=1e-7)


@cases
def test_the_result_is_in_the_set_and_the_input_is_not_touched(name: str) -> None:
    step, _ = CASES[name]
    start = 3.0 * np.random.default_rng(0).standard_normal((SIDE, SIDE))
    before = start.copy()
    found = step.apply(start, NOISE)
    np.testing.assert_array_equal(start, before)
    if name in ("semidefinite", "correlation"):
        assert np.array_equal(found, found.T)
        assert np.linalg.eigvalsh(found)[0] > -1e-13 * np.linalg.norm(found)
    if name == "correlation":
        assert (np.diagonal(found) == 1.0).all()
        assert np.abs(found).max() <= 1.0 + 1e-12
    if name == "simplex":
        assert found.min() >= 0.0
        assert found.sum() == pytest.approx(4.0, rel=1e-14)
    if name == "rows":
        assert found.min() >= 0.0
        np.testing.assert_allclose(found.sum(axis=1), 4.0, rtol=1e-14)
    if name == "clamp":
        assert (found >= LOWER).all()
        assert (found <= 2.0).all()


def test_a_simplex_far_away_loses_no_digits() -> None:
    start = 1e12 + np.array([[0.25, 0.5, -3.0]])
    np.testing.assert_array_equal(Simplex(1.0).apply(start, NOISE), [[0.375, 0.625, 0.0]])
    np.testing.assert_array_equal(
        Simplex(1.0).apply(np.array([[7.0, -1e300]]), NOISE), [[1.0, 0.0]]
    )


def higham(matrix: FloatArray, rounds: int) -> FloatArray:
    """Return the nearest correlation matrix by Higham's (2002) alternating projections."""
    correction = np.zeros_like(matrix)
    current = matrix
    for _ in range(rounds):
        shifted = current - correction
        values, vectors = np.linalg.eigh(shifted)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = positive - shifted
        current = positive.copy()
        np.fill_diagonal(current, 1.0)
    return current


@pytest.mark.parametrize("noise", [0.05, 0.5, 5.0])
def test_the_nearest_correlation_matrix_is_highams(noise: float) -> None:
    rng = np.random.default_rng(1)
    blur = noise * rng.standard_normal((12, 12))
    start = np.corrcoef(rng.standard_normal((12, 40))) + blur + blur.T
    found = CorrelationMatrix().apply(start, NOISE)
    np.testing.assert_allclose(found, higham(start, 3000), atol=1e-6)


def test_the_published_nearest_correlation_matrix() -> None:
    # Higham's (2002) example, to the four digits that are given.
    start = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    expected = [[1.0, 0.7607, 0.1573], [0.7607, 1.0, 0.7607], [0.1573, 0.7607, 1.0]]
    np.testing.assert_allclose(CorrelationMatrix().apply(start, NOISE), expected, atol=5e-5)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_correlation_matrices_of_any_size_of_noise(size: float) -> None:
    blur = size * np.random.default_rng(2).standard_normal((60, 60))
    found = CorrelationMatrix().apply(np.eye(60) + blur + blur.T, NOISE)
    assert np.linalg.eigvalsh(found)[0] > -1e-12 * 60
    # Optimal to first order: what was taken off is orthogonal to the matrix, but for its diagonal.
    for other in (np.eye(60), np.ones((60, 60))):
        assert np.sum((np.eye(60) + blur + blur.T - found) * (other - found)) <= 1e-7 * size * 60**2


def test_no_answer_rather_than_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrixdp.postprocess.correlation._MOST_STEPS", 1)
    with pytest.raises(CalibrationError, match="diagonal is still"):
        CorrelationMatrix().apply(10.0 * np.ones((3, 3)), NOISE)


def test_a_correlation_matrix_of_huge_numbers_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="far too large"):
        CorrelationMatrix().apply(1e13 * np.ones((3, 3)), NOISE)


@pytest.mark.parametrize("step", [PositiveSemidefinite(), CorrelationMatrix()])
def test_only_square_matrices_have_eigenvalues(step: Step) -> None:
    with pytest.raises(ShapeError, match=f"^{type(step).__name__} takes square"):
        step.check((2, 3), NOISE)


def test_bad_input_is_refused_by_name() -> None:
    for total in (0.0, -1.0, np.nan, np.inf, True):
        with pytest.raises(InvalidParameterError, match=r"^total="):
            Simplex(total)
    with pytest.raises(InvalidParameterError, match=r"^over='columns'"):
        Simplex(1.0, over="columns")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="both missing"):
        Clamp()
    with pytest.raises(InvalidParameterError, match=r"^lower is above upper"):
        Clamp(1.0, [[0.0, 2.0]])
    with pytest.raises(InvalidParameterError, match=r"^upper must be finite"):
        Clamp(upper=np.inf)
    with pytest.raises(InvalidParameterError, match=r"^lower"):
        Clamp(lower="a")
    with pytest.raises(ShapeError, match=r"^lower has shape"):
        Clamp(lower=[1.0, 2.0])
    with pytest.raises(ShapeError, match="do not fit one matrix"):
        Clamp(np.zeros((2, 2)), np.ones((3, 3)))
    with pytest.raises(ShapeError, match=r"^upper has shape \(3, 3\)"):
        Clamp(upper=np.ones((3, 3))).check((2, 3), NOISE)
