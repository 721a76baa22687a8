"""One contract for all covariances, against dense matrices written out in full."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from matrixdp import (
    Budget,
    Diagonal,
    FrobeniusBall,
    Guarantee,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.covariance import Covariance, SymmetricDiagonal
from matrixdp.errors import NotPositiveDefiniteError, ShapeError
from reference import dense

RNG = np.random.default_rng(0)
SHAPE = (3, 4)
ROWS, COLUMNS = dense.random_definite(3, RNG), dense.random_definite(4, RNG)
COVARIANCES = {
    "isotropic": Isotropic(1.7),
    "rows": Diagonal([[1.0], [2.0], [0.5]]),
    "columns": Diagonal([[1.0, 2.0, 0.5, 3.0]]),
    "entries": Diagonal(RNG.uniform(0.5, 2.0, SHAPE)),
    "kronecker": Kronecker(ROWS, COLUMNS),
    "one side, rows": Kronecker(rows=ROWS),
    "one side, columns": Kronecker(columns=COLUMNS),
    "factors": Kronecker.from_factors(np.linalg.cholesky(ROWS), RNG.standard_normal((4, 6))),
}
all_covariances = pytest.mark.parametrize("covariance", COVARIANCES.values(), ids=COVARIANCES)


@all_covariances
def test_whitening_undoes_colouring(covariance: Covariance) -> None:
    noise = RNG.standard_normal(SHAPE)
    np.testing.assert_allclose(covariance.whiten(covariance.colour(noise)), noise, atol=1e-12)
    np.testing.assert_allclose(covariance.colour(covariance.whiten(noise)), noise, atol=1e-12)


@all_covariances
def test_extreme_singular_values(covariance: Covariance) -> None:
    values = np.linalg.svd(dense.colouring_map(covariance, SHAPE), compute_uv=False)
    assert covariance.smallest_singular_value <= values[-1] * (1 + 1e-12)
    assert covariance.smallest_singular_value == pytest.approx(values[-1], rel=1e-9)
    assert covariance.largest_singular_value == pytest.approx(values[0], rel=1e-9)


@all_covariances
def test_entry_scales_and_total_variance(covariance: Covariance) -> None:
    colouring = dense.colouring_map(covariance, SHAPE)
    variances = np.diagonal(colouring @ colouring.T).reshape(SHAPE)
    np.testing.assert_allclose(covariance.entry_scales(SHAPE) ** 2, variances, rtol=1e-12)
    assert covariance.total_variance(SHAPE) == pytest.approx(float(variances.sum()), rel=1e-12)


@all_covariances
def test_scaling_never_falls_short(covariance: Covariance) -> None:
    larger = covariance.scaled(1.3)
    ratio = larger.entry_scales(SHAPE) / covariance.entry_scales(SHAPE)
    np.testing.assert_allclose(ratio, 1.3, rtol=1e-14)
    assert larger.smallest_singular_value == pytest.approx(
        1.3 * covariance.smallest_singular_value, rel=1e-12
    )


@all_covariances
def test_rescaled_for_is_tight(covariance: Covariance) -> None:
    ball, budget = FrobeniusBall(2.0, neighbouring="replace"), Budget(0.7, 1e-6)
    tight = covariance.rescaled_for(ball, budget)
    assert budget.mu * (1 - 1e-9) < ball.radius(tight).value <= budget.mu


def test_kronecker_is_the_kronecker_product() -> None:
    colouring = dense.colouring_map(Kronecker(ROWS, COLUMNS), SHAPE)
    np.testing.assert_allclose(colouring @ colouring.T, np.kron(ROWS, COLUMNS), atol=1e-12)


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_one_side_is_a_kronecker_product_with_the_identity(side: str) -> None:
    one = Kronecker(rows=ROWS) if side == "rows" else Kronecker(columns=COLUMNS)
    both = Kronecker(ROWS, np.eye(4)) if side == "rows" else Kronecker(np.eye(3), COLUMNS)
    colouring, other = (dense.colouring_map(each, SHAPE) for each in (one, both))
    np.testing.assert_allclose(colouring @ colouring.T, other @ other.T, atol=1e-12)
    assert one.smallest_singular_value == pytest.approx(both.smallest_singular_value, rel=1e-12)


def test_directions_and_scales() -> None:
    left, _ = np.linalg.qr(RNG.standard_normal((3, 3)))
    right, _ = np.linalg.qr(RNG.standard_normal((4, 4)))
    noise = Kronecker.from_directions((left, [1.0, 2.0, 3.0]), (right, [1.0, 1.0, 1.0, 5.0]))
    np.testing.assert_allclose(np.asarray(noise.rows), (left * [1, 4, 9]) @ left.T, atol=1e-12)
    assert noise.smallest_singular_value == pytest.approx(1.0)
    assert noise.largest_singular_value == pytest.approx(15.0)


def test_symmetric_noise_is_isotropic_in_its_embedding() -> None:
    noise = SymmetricIsotropic(1.5)
    coloured = noise.colour(RNG.standard_normal((4, 4)))
    np.testing.assert_array_equal(coloured, coloured.T)
    np.testing.assert_allclose(
        noise.entry_scales((2, 2)), [[1.5, 1.5 / math.sqrt(2)], [1.5 / math.sqrt(2), 1.5]]
    )
    for member in dense.symmetric_basis(4):
        assert np.linalg.norm(noise.whiten(member)) == pytest.approx(1 / 1.5)
    upper = np.triu(RNG.standard_normal((4, 4)))
    np.testing.assert_allclose(noise.whiten(noise.colour(upper)), upper, atol=1e-12)
    assert noise.scaled(2.0).scale == 3.0


def test_symmetric_noise_of_many_scales_is_isotropic_in_its_units() -> None:
    scales = np.array([0.5, 3.0, 1.0, 40.0])
    noise, units = SymmetricDiagonal(scales), np.multiply.outer(scales, scales)
    coloured = noise.colour(RNG.standard_normal((4, 4)))
    np.testing.assert_array_equal(coloured, coloured.T)
    plain = SymmetricIsotropic(1.0).entry_scales((4, 4))
    np.testing.assert_allclose(noise.entry_scales((4, 4)), units * plain)
    np.testing.assert_array_equal(noise.scales_of_rows(1, 2), noise.entry_scales((4, 4))[1:3])
    for member in dense.symmetric_basis(4):
        assert np.linalg.norm(noise.whiten(member * units)) == pytest.approx(1.0)
    upper = np.triu(RNG.standard_normal((4, 4)))
    np.testing.assert_allclose(noise.whiten(noise.colour(upper)), upper, atol=1e-12)
    np.testing.assert_allclose(
        noise.scaled(2.0).entry_scales((4, 4)), 2 * noise.entry_scales((4, 4))
    )
    assert noise.smallest_singular_value == pytest.approx(0.25)
    assert noise.largest_singular_value == 1600.0


def test_nothing_of_size_mn_squared_is_made() -> None:
    # 400 x 500 entries: a dense covariance would take 320 GB.
    wide = Kronecker(np.eye(400), np.eye(500))
    noise = wide.colour(np.ones((400, 500)))
    assert noise.shape == (400, 500)
    assert wide.smallest_singular_value == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Isotropic(0.0), InvalidParameterError, "scale=0.0"),
        (lambda: Isotropic(math.nan), InvalidParameterError, "scale=nan"),
        (lambda: SymmetricIsotropic(-1.0), InvalidParameterError, "scale=-1.0"),
        (lambda: SymmetricDiagonal([1.0, -1.0]), InvalidParameterError, r"scales\[1\]=-1.0"),
        (lambda: SymmetricDiagonal([1e-151]), InvalidParameterError, "from 1e-150"),
        (lambda: SymmetricDiagonal([1.0]).entry_scales((2, 2)), ShapeError, "do not fit"),
        (lambda: Diagonal([1.0, 2.0]), ShapeError, "scales has shape"),
        (lambda: Diagonal([[1.0, 0.0]]), InvalidParameterError, "smallest is 0.0"),
        (lambda: Diagonal([[1.0, math.inf]]), InvalidParameterError, "NaN or infinity"),
        (lambda: Diagonal([["a"]]), InvalidParameterError, "scales has dtype"),
        (lambda: Diagonal([[True, 2.0]]), InvalidParameterError, "scales holds booleans"),
        (lambda: Diagonal(np.ones((0, 3))), ShapeError, "not empty"),
        (
            lambda: Kronecker([[1.0, 0.1], [0.2, 1.0]], np.eye(2)),
            InvalidParameterError,
            "asymmetry",
        ),
        (lambda: Kronecker(np.ones((2, 3)), np.eye(2)), ShapeError, "square"),
        (lambda: Kronecker(np.eye(2), np.ones((2, 2))), NotPositiveDefiniteError, "columns"),
        (lambda: Kronecker(np.diag([1.0, -1.0]), np.eye(2)), NotPositiveDefiniteError, "rows"),
        (lambda: Kronecker(np.diag([1.0, 1e-18]), np.eye(2)), NotPositiveDefiniteError, "rows"),
        (lambda: Kronecker(np.eye(2) * 1j, np.eye(2)), InvalidParameterError, "dtype"),
        (
            lambda: Kronecker.from_factors(np.ones((3, 2)), np.eye(2)),
            NotPositiveDefiniteError,
            "row",
        ),
        (
            lambda: Kronecker.from_directions((np.ones((2, 2)), [1, 1]), (np.eye(2), [1, 1])),
            InvalidParameterError,
            "orthonormal",
        ),
        (
            lambda: Kronecker.from_directions((np.eye(2), [1, -1]), (np.eye(2), [1, 1])),
            InvalidParameterError,
            "rows scales|scales of shape",
        ),
        (
            lambda: Kronecker.from_directions((np.eye(2), [1, 1, 1]), (np.eye(2), [1, 1])),
            ShapeError,
            "rows scales|scales of shape",
        ),
        (
            lambda: Kronecker.from_directions((np.eye(2), [[1], [1, 1]]), (np.eye(2), [1, 1])),
            ShapeError,
            "rows scales is ragged",
        ),
        (lambda: Isotropic(1.0).scaled(math.nan), InvalidParameterError, "factor=nan"),
        (lambda: SymmetricIsotropic(1.0).scaled(0.0), InvalidParameterError, "factor=0.0"),
        (lambda: Diagonal([[1.0]]).scaled(-1.0), InvalidParameterError, "factor=-1.0"),
        (lambda: Kronecker([[1.0]], [[1.0]]).scaled(math.inf), InvalidParameterError, "factor=inf"),
        (
            lambda: Isotropic(1.0).rescaled_for(FrobeniusBall(1.0, "replace"), 1.0),  # type: ignore[arg-type]
            InvalidParameterError,
            "budget is a float",
        ),
        (
            lambda: Isotropic(1.0).rescaled_for(1.0, Budget(1.0, 1e-5)),  # type: ignore[arg-type]
            InvalidParameterError,
            "sensitivity is a float",
        ),
        (
            lambda: Kronecker.from_directions((np.eye(2) + 1e-6, [1, 1]), (np.eye(2), [1, 1])),
            InvalidParameterError,
            "orthonormal",
        ),
        (
            lambda: Isotropic(1.0).rescaled_for(
                FrobeniusBall(1.0, "replace"),
                Guarantee(epsilon=0.0, delta=0.1, mu=0.0, neighbouring="replace"),
            ),
            InvalidParameterError,
            "positive mu",
        ),
        (lambda: Kronecker(rows=np.diag([1.0, -1.0])), NotPositiveDefiniteError, "rows"),
        (Kronecker, InvalidParameterError, "rows and columns"),
        (lambda: Kronecker(rows=np.eye(2)).check_shape((3, 2)), ShapeError, "2 rows"),
        (lambda: Kronecker(columns=np.eye(2)).check_shape((2, 3)), ShapeError, "2 columns"),
        (lambda: SymmetricIsotropic(1.0).entry_scales((2, 3)), ShapeError, "square"),
        (lambda: Diagonal([[1.0], [2.0]]).entry_scales((3, 3)), ShapeError, "do not fit"),
        (
            lambda: Kronecker(np.eye(2), np.eye(3)).check_shape((3, 2)),
            ShapeError,
            r"2 rows.*\(3, 2\)",
        ),
    ],
)
def test_bad_covariances(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_inputs_are_copied_and_frozen() -> None:
    scales = np.ones((2, 2))
    noise = Diagonal(scales)
    scales[0, 0] = 1e-9
    assert noise.smallest_singular_value == 1.0
    with pytest.raises(ValueError, match="read-only"):
        noise.scales[0, 0] = 1e-9
