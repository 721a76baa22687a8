"""Radii in rational arithmetic: never below the truth, by as little as a unit in the last place.

A radius that forgot its allowance for rounding, or the error bound of an inverse, would fall short
in about half of these cases.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from numpy.typing import NDArray

from matrixdp import (
    Budget,
    Diagonal,
    FrobeniusBall,
    Isotropic,
    Kronecker,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.covariance import SymmetricDiagonal
from matrixdp.sensitivity import Radius, ScaledBall, ScaledSymmetricBall, protects_repeated

Matrix = NDArray[np.float64]

CASES = range(60)


def squares_over(bounds: Matrix, scales: Matrix) -> list[list[Fraction]]:
    """Return ``(bounds_j / scales_ij)^2`` exactly."""
    return [
        [(Fraction(b) / Fraction(s)) ** 2 for b, s in zip(bounds.tolist(), row, strict=True)]
        for row in scales.tolist()
    ]


def exact_inverse(matrix: Matrix) -> list[list[Fraction]]:
    """Return the inverse of a matrix of floats."""
    rational = fmpq_mat(
        len(matrix),
        len(matrix),
        [fmpq(*float(x).as_integer_ratio()) for x in matrix.ravel()],
    ).inv()
    size = range(len(matrix))
    return [[Fraction(int(rational[i, j].p), int(rational[i, j].q)) for j in size] for i in size]


def ill_conditioned(rng: np.random.Generator, size: int, power: float) -> Matrix:
    """Return a random symmetric matrix whose eigenvalues span so many powers of ten."""
    turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
    matrix = (turn * 10.0 ** -np.linspace(0.0, power, size)) @ turn.T
    return np.asarray((matrix + matrix.T) / 2)


def largest_corner(bounds: Matrix, precision: list[list[Fraction]]) -> Fraction:
    """Return the largest ``c^T P c`` over the corners of a box."""
    exact = [Fraction(b) for b in bounds.tolist()]
    size = range(len(exact))
    return max(
        sum(
            (signs[i] * exact[i] * precision[i][j] * signs[j] * exact[j])
            for i, j in product(size, size)
        )
        + Fraction(0)
        for signs in product((1, -1), repeat=len(exact))
    )


def scaled_radii(bound: float, units: Matrix, scales: Matrix) -> list[tuple[Radius, Fraction]]:
    """Return radii of scaled sets, and their squares exactly."""
    size = range(len(units))
    exact = [Fraction(unit) for unit in units.tolist()]
    rows = [Fraction(scale) for scale in scales[0].tolist()]
    weights = [
        [(exact[i] * rows[j] / Fraction(scale)) ** 2 for j, scale in enumerate(row)]
        for i, row in enumerate(scales.tolist())
    ]
    pairs = [
        [(exact[i] * exact[j] / Fraction(scale)) ** 2 for j, scale in enumerate(row)]
        for i, row in enumerate(scales.tolist())
    ]
    square = Fraction(bound) ** 2
    ball = ScaledBall(bound, units, scales[0], "replace")
    symmetric = ScaledSymmetricBall(bound, units, "replace")
    own = max((exact[i] / rows[i]) ** 4 for i in size)
    heaviest = max((pairs[i][j] + pairs[j][i]) / 2 for i in size for j in size)
    return [
        (ball.radius(Diagonal(scales)), max(map(max, weights)) * square),
        (symmetric.radius(Diagonal(scales)), heaviest * square),
        (symmetric.radius(SymmetricDiagonal(scales[0])), own * square),
        (
            SymmetricBall(bound, "replace").radius(SymmetricDiagonal(scales[0])),
            square / min(rows) ** 4,
        ),
    ]


@pytest.mark.parametrize("case", CASES)
def test_entries_of_symmetric_noise_have_at_least_the_scale_that_is_claimed(case: int) -> None:
    # Whatever is proven about the scales of the sides holds for the noise that is drawn.
    sides = 10.0 ** np.random.default_rng(case).uniform(-60, 60, 5)
    drawn = SymmetricDiagonal(sides).entry_scales((5, 5))
    for i, j in product(range(5), repeat=2):
        share = Fraction(1) if i == j else Fraction(1, 2)
        claimed = share * (Fraction(sides[i].item()) * Fraction(sides[j].item())) ** 2
        assert claimed <= Fraction(drawn[i, j].item()) ** 2 <= claimed * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("case", CASES)
def test_independent_noise(case: int) -> None:
    rng = np.random.default_rng(case)
    size = int(rng.integers(1, 9))
    bounds = 10.0 ** rng.uniform(-3, 3, size)
    scales = 10.0 ** rng.uniform(-3, 3, (size, size))
    one = float(scales[0, 0])
    whole = sum(Fraction(b) ** 2 for b in bounds.tolist())
    ratios = squares_over(bounds, scales)
    corner = max(sum(row) for row in ratios)
    row_ratios = squares_over(
        np.repeat(bounds[:, None], size, axis=1).ravel(), scales.reshape(1, -1)
    )
    pairs = squares_over(np.ones(size), scales)
    heaviest = max((pairs[i][j] + pairs[j][i]) / 2 for i in range(size) for j in range(size))
    first = float(bounds[0])
    for found, truth in [
        (
            FrobeniusBall(first, "replace").radius(Isotropic(one)),
            Fraction(first) ** 2 / Fraction(one) ** 2,
        ),
        (RowBox(bounds, "replace").radius(Isotropic(one)), whole / Fraction(one) ** 2),
        (RowBox(bounds, "replace").radius(Diagonal(scales)), corner),
        (RowBounds(bounds, "replace").radius(Diagonal(scales)), max(row_ratios[0])),
        (SymmetricBall(first, "replace").radius(Diagonal(scales)), heaviest * Fraction(first) ** 2),
        *scaled_radii(first, bounds, scales),
    ]:
        assert truth <= Fraction(found.value) ** 2 <= truth * (1 + Fraction(1, 10**13))


@pytest.mark.parametrize("power", [0.0, 6.0, 10.0, 12.5])
@pytest.mark.parametrize("case", range(12))
def test_full_covariances(case: int, power: float) -> None:
    rng = np.random.default_rng([case, int(power * 2)])
    rows, columns = ill_conditioned(rng, 3, power), ill_conditioned(rng, 2, power)
    row_bounds, box = rng.uniform(0.5, 2.0, 3), rng.uniform(0.5, 2.0, 2)
    row_precision = exact_inverse(rows)
    heaviest = max(row_precision[i][i] for i in range(3))
    # One column of unit variance, and then unit rows: each side alone has a rational truth.
    for_rows = max(
        Fraction(b) ** 2 * row_precision[i][i] for i, b in enumerate(row_bounds.tolist())
    )
    found = RowBounds(row_bounds, "replace").radius(Kronecker(rows, np.eye(1)))
    assert Fraction(found.value) ** 2 >= for_rows
    boxed = RowBox(box, "replace").radius(Kronecker(rows, columns))
    corner = largest_corner(box, exact_inverse(columns))
    alone = RowBox(box, "replace").radius(Kronecker(np.eye(1), columns))
    assert Fraction(alone.value) ** 2 >= corner
    assert Fraction(boxed.value) ** 2 >= heaviest * corner
    if power <= 6.0:
        tolerance = 1 + Fraction(1, 10**6)
        assert Fraction(found.value) ** 2 <= for_rows * tolerance
        assert Fraction(boxed.value) ** 2 <= heaviest * corner * tolerance


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: Kronecker(ill_conditioned(rng, 3, 9.0), ill_conditioned(rng, 2, 3.0)),
        lambda rng: Diagonal(10.0 ** rng.uniform(-3, 3, (3, 2))),
    ],
    ids=["full", "independent"],
)
def test_rescaling_keeps_the_budget(make: Callable[[np.random.Generator], Kronecker]) -> None:
    rng = np.random.default_rng(9)
    box = RowBox([1.0, 0.3], "replace")
    for _ in CASES:
        budget = Budget(10.0 ** float(rng.uniform(-2, 1)), 1e-6)
        tight = make(rng).rescaled_for(box, budget)
        assert budget.mu * (1 - 1e-6) <= box.radius(tight).value <= budget.mu


def test_scaling_never_falls_short() -> None:
    rng = np.random.default_rng(10)
    for scale, factor in 10.0 ** rng.uniform(-5, 5, (100, 2)):
        exact = Fraction(float(scale)) * Fraction(float(factor))
        for larger in (
            Isotropic(scale).scaled(factor).scale,
            float(Diagonal([[scale]]).scaled(factor).scales[0, 0]),
        ):
            assert exact <= Fraction(larger) <= exact * (1 + Fraction(1, 10**15))


def test_what_is_allowed_repeatedly_never_exceeds_the_budget() -> None:
    noise = Kronecker(np.eye(2), np.eye(2))
    for steps in (*range(1, 60), 10**6, 10**12 + 1):
        budget = Budget(0.7, 1e-6)
        allowed = Fraction(protects_repeated(noise, 1.0, budget, steps=steps).allowed)
        spent = allowed**2 * steps
        assert budget.mu_squared * (1 - Fraction(1, 10**15)) <= spent <= budget.mu_squared


@pytest.mark.parametrize(
    ("bound", "rows", "columns"),
    [
        (1e-200, 1e300, 1e-300),
        (1e-300, 1e300, 1e-300),
        (1e200, 1e-300, 1e300),
        (1e-150, 1e-300, 1.0),
    ],
)
def test_nothing_underflows_on_the_way(bound: float, rows: float, columns: float) -> None:
    noise = Kronecker([[rows]], [[columns]])
    truth = Fraction(bound) ** 2 / (Fraction(rows) * Fraction(columns))
    for found in (
        RowBounds([bound], "replace").radius(noise),
        RowBox([bound], "replace").radius(noise),
        FrobeniusBall(bound, "replace").radius(noise),
    ):
        assert truth <= Fraction(found.value) ** 2 <= truth * (1 + Fraction(1, 10**13))


@pytest.mark.parametrize("exponent", [199.3, 215.7, 222.1, 223.9, 300.4])
def test_no_quotient_of_units_and_scales_underflows(exponent: float) -> None:
    """Divided one after another, small units over large scales would be 0, or lose digits."""
    scale = 10.0**exponent
    ball = ScaledBall(1.7e30, rows=[1.3e-100], columns=[1.9e100], neighbouring="replace")
    exact = Fraction(1.7e30) * Fraction(1.3e-100) * Fraction(1.9e100) / Fraction(scale)
    found = Fraction(ball.radius(Diagonal([[scale]])).value)
    assert exact <= found <= exact * (1 + Fraction(1, 2**48))
    symmetric = ScaledSymmetricBall(1.7e160, units=[1.3e-70], neighbouring="replace")
    exact = Fraction(1.7e160) * Fraction(1.3e-70) ** 2 / Fraction(scale)
    found = Fraction(symmetric.radius(Diagonal([[scale]])).value)
    assert exact <= found <= exact * (1 + Fraction(1, 2**48))


def test_subnormal_numbers_keep_their_meaning() -> None:
    least = 5e-324
    for count in (2, 3, 5, 7):
        found = RowBox([least] * count, "replace").radius(Isotropic(least)).value
        assert count <= Fraction(found) ** 2 <= count * (1 + Fraction(1, 10**13))
    found = SymmetricBall(1e300, "replace").radius(Diagonal([[1.7e308]])).value
    truth = (Fraction(1e300) / Fraction(1.7e308)) ** 2
    assert truth <= Fraction(found) ** 2 <= truth * (1 + Fraction(1, 10**13))


@pytest.mark.parametrize("size", [20, 100, 200])
def test_exact_means_to_a_millionth(size: int) -> None:
    # The heaviest bound lies where the inverse is small, and its error is large beside it.
    variances = np.ones(size)
    variances[-1] = 1e7
    bounds = np.full(size, 1e-12)
    bounds[-1] = 1.0
    truth = Fraction(1) / Fraction(10**7)
    for found in (
        RowBox(bounds, "replace").radius(Kronecker([[1.0]], np.diag(variances))),
        RowBounds(bounds, "replace").radius(Kronecker(np.diag(variances), [[1.0]])),
    ):
        assert Fraction(found.value) ** 2 >= truth
        if found.exact:
            assert Fraction(found.value) ** 2 <= truth * (1 + Fraction(3, 10**6))
