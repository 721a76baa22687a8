"""Proven bounds against spectra computed in ball arithmetic."""

import numpy as np
import pytest
from flint import acb_mat, arb, arb_mat, ctx
from scipy import linalg

from matrixdp.spectra import (
    eigenvalue_lower_bounds,
    inverse_enclosure,
    singular_value_upper_bounds,
)
from reference import dense


def true_eigenvalues(matrix: dense.FloatArray) -> list[arb]:
    """Return the eigenvalues of a symmetric float matrix in 300-bit ball arithmetic, ascending."""
    saved, ctx.prec = ctx.prec, 300
    try:
        values = acb_mat(arb_mat(matrix.tolist())).eig(nonstop=True)
        return sorted((value.real for value in values), key=lambda ball: float(ball.mid()))
    finally:
        ctx.prec = saved


@pytest.mark.parametrize(("size", "spread"), [(1, 1.0), (2, 5.0), (5, 2.0), (9, 20.0), (14, 8.0)])
def test_eigenvalue_bounds_are_below_and_close(size: int, spread: float) -> None:
    rng = np.random.default_rng(size)
    for _ in range(5):
        matrix = dense.random_definite(size, rng, spread)
        truths = true_eigenvalues(matrix)
        bounds = eigenvalue_lower_bounds(matrix, "matrix").tolist()
        for bound, truth in zip(bounds, truths, strict=True):
            assert bool(arb(bound) < truth)
            assert bool(arb(bound) > truth - float(truths[-1].mid()) * size * 1e-14)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (6, 2), (8, 8)])
def test_singular_value_bounds_are_above_and_close(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(shape))
    matrix = rng.standard_normal(shape)
    narrow = matrix if shape[0] <= shape[1] else matrix.T
    ctx.prec, saved = 300, ctx.prec
    try:
        exact = arb_mat(narrow.tolist())
        squares = acb_mat(exact * exact.transpose()).eig(nonstop=True)
        truths = sorted((value.real.sqrt() for value in squares), key=lambda b: -float(b.mid()))
    finally:
        ctx.prec = saved
    bounds = singular_value_upper_bounds(matrix).tolist()
    for bound, truth in zip(bounds, truths, strict=True):
        assert bool(arb(bound) > truth)
        assert bool(arb(bound) < truth + float(truths[0].mid()) * 1e-13)


def test_the_inverse_is_enclosed() -> None:
    rng = np.random.default_rng(4)
    matrix = dense.random_definite(6, rng, 12.0)
    smallest = float(eigenvalue_lower_bounds(matrix, "matrix")[0])
    inverse, error = inverse_enclosure(matrix, smallest)
    ctx.prec, saved = 300, ctx.prec
    try:
        truth = arb_mat(matrix.tolist()).inv()
    finally:
        ctx.prec = saved
    for row in range(6):
        for column in range(6):
            assert bool(abs(truth[row, column] - inverse[row, column].item()) < error)
    assert error < 1e-6 / smallest


@pytest.mark.parametrize("scale", [2.0**-700, 2.0**-460, 2.0**460, 2.0**700])
def test_extreme_magnitudes_keep_their_bounds(scale: float) -> None:
    # Squares of such entries over- or underflow; the proof must not lose its error terms to that.
    plain = dense.random_definite(4, np.random.default_rng(9))
    matrix = plain * scale
    truths = true_eigenvalues(plain)  # powers of two scale exactly
    for bound, truth in zip(eigenvalue_lower_bounds(matrix, "m").tolist(), truths, strict=True):
        assert bool(arb(bound / scale) < truth)
        assert bool(arb(bound / scale) > truth * (1 - 1e-12))


@pytest.mark.parametrize("size", [2, 5, 9])
def test_a_careless_decomposition_is_no_proof(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the decomposition is off by must come out of the bounds, not be believed away.
    rng = np.random.default_rng(size)
    eigh, svd = linalg.eigh, linalg.svd

    def careless_eigh(matrix: dense.FloatArray) -> tuple[dense.FloatArray, dense.FloatArray]:
        values, vectors = eigh(matrix)
        return values * (1 + 1e-5), vectors + 1e-6 * rng.standard_normal(vectors.shape)

    def careless_svd(
        matrix: dense.FloatArray, **options: bool
    ) -> tuple[dense.FloatArray, dense.FloatArray, dense.FloatArray]:
        left, values, right = svd(matrix, **options)
        return left, values * (1 - 1e-5), right

    for _ in range(5):
        matrix = dense.random_definite(size, rng, 3.0)
        truths = true_eigenvalues(matrix)
        with monkeypatch.context() as patch:
            patch.setattr(linalg, "eigh", careless_eigh)
            patch.setattr(linalg, "svd", careless_svd)
            lower = eigenvalue_lower_bounds(matrix, "matrix").tolist()
            upper = singular_value_upper_bounds(matrix).tolist()
        assert all(bool(arb(b) < t) for b, t in zip(lower, truths, strict=True))
        assert all(bool(arb(b) > t) for b, t in zip(upper, reversed(truths), strict=True))
