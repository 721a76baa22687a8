"""Sensitivity sets against brute force: radii hold for every member, and the best noise is best."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from matrixdp import (
    Budget,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    RowBounds,
    RowBox,
    SymmetricBall,
    SymmetricIsotropic,
)
from matrixdp.covariance import Covariance, SymmetricDiagonal
from matrixdp.errors import ShapeError
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import SensitivitySet
from reference import dense

RNG = np.random.default_rng(8)
SIZE = 4
SHAPE = (SIZE, SIZE)
BUDGET = Budget(0.8, 1e-6)
SETS: dict[str, SensitivitySet] = {
    "ball": FrobeniusBall(1.3, neighbouring="replace"),
    "symmetric": SymmetricBall(0.7, neighbouring="add-remove"),
    "rows": RowBounds([1.0, 0.2, 3.0, 0.9], neighbouring="replace"),
    "box": RowBox([0.1, 5.0, 1.0, 0.6], neighbouring="add-remove"),
    "scaled": ScaledBall(0.8, [1.0, 3.0, 0.4, 1.0], [0.2, 1.0, 2.0, 0.5], neighbouring="replace"),
    "scaled symmetric": ScaledSymmetricBall(0.9, [1.0, 2.0, 0.3, 1.5], neighbouring="replace"),
}
SIDES = ("rows", "columns")
SAME = dense.random_definite(SIZE, RNG)
COVARIANCES: dict[str, Covariance] = {
    "isotropic": Isotropic(0.9),
    "rows": Diagonal(RNG.uniform(0.3, 3, (SIZE, 1))),
    "columns": Diagonal(RNG.uniform(0.3, 3, (1, SIZE))),
    "entries": Diagonal(RNG.uniform(0.3, 3, SHAPE)),
    "kronecker": Kronecker(dense.random_definite(SIZE, RNG), dense.random_definite(SIZE, RNG)),
    "equal": Kronecker(SAME, SAME),
    "diagonal kronecker": Kronecker(np.diag([1.0, 2, 3, 4]), np.diag([0.5, 1, 2, 9])),
    "diagonal columns": Kronecker(dense.random_definite(SIZE, RNG), np.diag([0.5, 1, 2, 9])),
    "one side, rows": Kronecker(rows=dense.random_definite(SIZE, RNG)),
    "one side, columns": Kronecker(columns=dense.random_definite(SIZE, RNG)),
    "mirrored": SymmetricIsotropic(1.1),
    "mirrored, of many scales": SymmetricDiagonal([0.5, 2.0, 1.0, 0.7]),
}
PAIRS = [
    pytest.param(sensitivity, covariance, id=f"{set_name}-{name}")
    for set_name, sensitivity in SETS.items()
    for name, covariance in COVARIANCES.items()
    if not covariance.mirrored or "symmetric" in set_name
]
all_sets = pytest.mark.parametrize("sensitivity", SETS.values(), ids=SETS)


@pytest.mark.parametrize(("sensitivity", "covariance"), PAIRS)
def test_no_member_exceeds_the_radius_and_the_worst_attains_it(
    sensitivity: SensitivitySet, covariance: Covariance
) -> None:
    radius = sensitivity.radius(covariance)
    worst = dense.worst_member(sensitivity, covariance, SHAPE)
    reached = float(np.linalg.norm(covariance.whiten(worst)))
    assert reached <= radius.value * (1 + 1e-13)
    for _ in range(200):
        member = dense.random_member(sensitivity, SHAPE, RNG)
        assert np.linalg.norm(covariance.whiten(member)) <= radius.value * (1 + 1e-13)
    if radius.exact:
        assert reached >= radius.value * (1 - 1e-6)


def test_which_radii_are_exact() -> None:
    inexact = {
        (set_name, name)
        for set_name, sensitivity in SETS.items()
        for name, covariance in COVARIANCES.items()
        if (not covariance.mirrored or "symmetric" in set_name)
        and not sensitivity.radius(covariance).exact
    }
    assert inexact == {
        ("symmetric", "kronecker"),
        ("symmetric", "diagonal kronecker"),
        ("symmetric", "diagonal columns"),
        ("box", "kronecker"),
        ("box", "equal"),
        *((kind, f"one side, {side}") for kind in ("symmetric",) for side in SIDES),
        ("box", "one side, columns"),
        *(
            (kind, name)
            for kind in ("scaled", "scaled symmetric")
            for name, covariance in COVARIANCES.items()
            if isinstance(covariance, Kronecker)
        ),
    }


@all_sets
def test_best_covariance_is_tight(sensitivity: SensitivitySet) -> None:
    best = sensitivity.best_covariance(BUDGET)
    assert BUDGET.mu * (1 - 1e-13) < sensitivity.radius(best).value <= BUDGET.mu


def random_covariance() -> Covariance:
    kind = RNG.integers(4)
    if kind == 0:
        return Isotropic(1.0)
    if kind == 1:
        shape = [(SIZE, 1), (1, SIZE), SHAPE][RNG.integers(3)]
        return Diagonal(np.exp(RNG.uniform(-1, 1, shape)))
    spread = RNG.uniform(0.01, 2.0)
    rows = np.eye(SIZE) if kind == 2 else dense.random_definite(SIZE, RNG, spread)
    return Kronecker(rows, dense.random_definite(SIZE, RNG, spread))


@all_sets
def test_best_covariance_beats_many_others(sensitivity: SensitivitySet) -> None:
    least = sensitivity.best_covariance(BUDGET).total_variance(SHAPE)
    others = [
        random_covariance().rescaled_for(sensitivity, BUDGET).total_variance(SHAPE)
        for _ in range(200)
    ]
    assert least <= min(others) * (1 + 1e-9)
    assert least < np.median(others)


@pytest.mark.parametrize("sensitivity", [SETS["rows"], SETS["box"]], ids=["rows", "box"])
def test_no_small_change_improves_the_best(sensitivity: SensitivitySet) -> None:
    best = sensitivity.best_covariance(BUDGET)
    assert isinstance(best, Diagonal)
    for _ in range(200):
        nudged = Diagonal(best.scales * np.exp(0.01 * RNG.standard_normal(best.scales.shape)))
        other = nudged.rescaled_for(sensitivity, BUDGET)
        assert best.total_variance(SHAPE) <= other.total_variance(SHAPE) * (1 + 1e-12)


def test_total_variance_of_the_box() -> None:
    bounds = np.array([0.1, 5.0, 1.0, 0.6])
    box = RowBox(bounds, neighbouring="replace")
    per_row = box.best_covariance(BUDGET).total_variance((1, SIZE))
    assert per_row == pytest.approx(bounds.sum() ** 2 / BUDGET.mu**2, rel=1e-12)
    same = Isotropic(1.0).rescaled_for(box, BUDGET).total_variance((1, SIZE))
    assert same == pytest.approx(SIZE * (bounds**2).sum() / BUDGET.mu**2, rel=1e-12)


def test_weights_of_the_box() -> None:
    bounds, weights = np.array([0.1, 5.0, 1.0, 0.6]), np.array([1.0, 0.2, 30.0, 4.0])
    box = RowBox(bounds, "replace", weights=weights)
    best = box.best_covariance(BUDGET)
    expected = bounds / np.sqrt(weights) * (bounds * np.sqrt(weights)).sum() / BUDGET.mu**2
    np.testing.assert_allclose(best.scales[0] ** 2, expected, rtol=1e-12)
    for _ in range(300):
        other = Diagonal(np.exp(RNG.uniform(-2, 2, (1, SIZE)))).rescaled_for(box, BUDGET)
        assert weights @ best.scales[0] ** 2 <= weights @ other.scales[0] ** 2 * (1 + 1e-12)


def test_row_bounds_give_every_row_its_least() -> None:
    rows = SETS["rows"]
    assert isinstance(rows, RowBounds)
    scales = rows.best_covariance(BUDGET).scales[:, 0]
    np.testing.assert_allclose(scales, rows.bounds / BUDGET.mu, rtol=1e-13)


def test_symmetric_noise_halves_the_variance_off_the_diagonal() -> None:
    symmetric = SETS["symmetric"]
    best = symmetric.best_covariance(BUDGET)
    plain = Isotropic(1.0).rescaled_for(symmetric, BUDGET)
    ratio = best.entry_scales(SHAPE) ** 2 / plain.entry_scales(SHAPE) ** 2
    np.testing.assert_allclose(np.diagonal(ratio), 1.0, rtol=1e-12)
    np.testing.assert_allclose(ratio[0, 1:], 0.5, rtol=1e-12)


def test_on_the_ball_valid_means_above_the_isotropic_floor() -> None:
    # A covariance is valid iff it is at least (s2/B)^2 I in the Loewner order; so any valid
    # noise is the i.i.d. noise plus independent extra noise.
    ball = FrobeniusBall(1.3, neighbouring="replace")
    floor = ball.best_covariance(BUDGET).scale ** 2
    for _ in range(50):
        tight = random_covariance().rescaled_for(ball, BUDGET)
        colouring = dense.colouring_map(tight, SHAPE)
        smallest = np.linalg.eigvalsh(colouring @ colouring.T)[0]
        assert smallest == pytest.approx(floor, rel=1e-9)
        looser = tight.scaled(0.99)
        assert ball.radius(looser).value > BUDGET.mu


def test_extreme_magnitudes_neither_overflow_nor_vanish() -> None:
    for size in (1e-200, 1e200):
        box = RowBox([size, 2 * size], neighbouring="replace")
        assert box.radius(Isotropic(size)).value == pytest.approx(math.sqrt(5))
        assert box.radius(Diagonal([[size, size]])).value == pytest.approx(math.sqrt(5))
        ball = SymmetricBall(size, neighbouring="replace")
        assert ball.radius(Diagonal(np.full((2, 2), size))).value == pytest.approx(1.0)


@pytest.mark.parametrize("bound", [1e-60, 1e-200, 1.0, 0.1, 3e5])
@pytest.mark.parametrize("scale", [7e250, 1e200, 3.3, 0.7])
def test_radii_of_independent_noise_in_exact_arithmetic(bound: float, scale: float) -> None:
    truth = (Fraction(bound) / Fraction(scale)) ** 2
    for sensitivity, covariance, times in (
        (FrobeniusBall(bound, "replace"), Diagonal([[scale]]), 1),
        (SymmetricBall(bound, "replace"), Diagonal([[scale]]), 1),
        (RowBounds([bound], "replace"), Diagonal([[scale]]), 1),
        (RowBounds([bound], "replace"), Isotropic(scale), 1),
        (RowBox([bound, bound], "replace"), Isotropic(scale), 2),
        (RowBox([bound, bound], "replace"), Diagonal([[scale, scale]]), 2),
    ):
        radius = sensitivity.radius(covariance)
        assert Fraction(radius.value) ** 2 >= times * truth
        if truth > Fraction(10) ** -500:
            assert Fraction(radius.value) ** 2 <= times * truth * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize("power", [4, 8, 10, 12, 13])
def test_radii_of_ill_conditioned_noise_are_safe_and_labelled(power: int) -> None:
    # With a diagonal covariance the truth is known exactly; a rotation is float64's to bound.
    values = np.array([1.0, 10.0**-power])
    ball = FrobeniusBall(1.0, "replace")
    plain = ball.radius(Kronecker(np.diag(values), np.eye(2)))
    assert Fraction(plain.value) ** 2 * Fraction(values[1].item()) >= 1
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    turned = (turn * values) @ turn.T
    radius = ball.radius(Kronecker((turned + turned.T) / 2, np.eye(2)))
    reached = 10.0 ** (power / 2)
    assert radius.value >= reached * (1 - 1e-15 * 10.0**power)
    if radius.exact:
        assert radius.value <= reached * (1 + 1e-6 + 1e-15 * 10.0**power)
    assert plain.exact == (power < 9) or plain.value <= reached * (1 + 1e-6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FrobeniusBall(0.0, "replace"), InvalidParameterError, "bound=0.0"),
        (lambda: FrobeniusBall(1.0, "swap"), InvalidParameterError, "neighbouring='swap'"),  # type: ignore[arg-type]
        (lambda: SymmetricBall(math.inf, "replace"), InvalidParameterError, "bound=inf"),
        (lambda: RowBounds([1.0, 0.0], "replace"), InvalidParameterError, r"bounds\[1\]=0.0"),
        (lambda: RowBounds([[1.0]], "replace"), ShapeError, "bounds"),
        (lambda: RowBounds([[1.0], [1.0, 2.0]], "replace"), ShapeError, "bounds is ragged"),
        (
            lambda: FrobeniusBall(1.0, np.array(["replace", "replace"])),  # type: ignore[arg-type]
            InvalidParameterError,
            "neighbouring=array",
        ),
        (lambda: RowBounds([], "replace"), ShapeError, "bounds"),
        (
            lambda: RowBounds([1.0, True], "replace"),
            InvalidParameterError,
            "bounds holds booleans",
        ),
        (lambda: RowBox([1.0, math.nan], "replace"), InvalidParameterError, "bounds"),
        (lambda: RowBox([1.0], "replace", weights=[1.0, 2.0]), ShapeError, "weights"),
        (lambda: RowBox([1.0], "replace", weights=[-1.0]), InvalidParameterError, r"weights\[0\]"),
        (lambda: RowBox([1.0, 2.0], "replace").check_shape((2, 3)), ShapeError, "2 columns"),
        (lambda: RowBounds([1.0], "replace").check_shape((2, 3)), ShapeError, "1 rows"),
        (lambda: SymmetricBall(1.0, "replace").check_shape((2, 3)), ShapeError, "SymmetricBall"),
        (
            lambda: RowBox([1.0, 2.0], "replace").radius(Diagonal([[1.0, 1.0, 1.0]])),
            ShapeError,
            "3 columns",
        ),
        (
            lambda: RowBounds([1.0], "replace").radius(Kronecker(np.eye(2), np.eye(2))),
            ShapeError,
            "2 rows",
        ),
        (
            lambda: ScaledBall(1.0, [1.0], [1.0], "replace").radius(SymmetricDiagonal([1.0])),
            InvalidParameterError,
            "SymmetricDiagonal protects symmetric",
        ),
        (
            lambda: ScaledSymmetricBall(1.0, [1.0, 2.0], "replace").check_shape((2, 3)),
            ShapeError,
            "one unit for each",
        ),
        (
            lambda: FrobeniusBall(1.0, "replace").radius(SymmetricIsotropic(1.0)),
            InvalidParameterError,
            "SymmetricBall",
        ),
        (lambda: RowBox([1.0], "replace").radius("noise"), InvalidParameterError, "str"),  # type: ignore[arg-type]
        (lambda: FrobeniusBall(2**60 + 100, "replace"), InvalidParameterError, "61 bits"),
        (lambda: RowBounds([2**53 + 1], "replace"), InvalidParameterError, r"2\*\*53"),
        (lambda: RowBounds([2**53 + 1, 0.5], "replace"), InvalidParameterError, r"2\*\*53"),
        (lambda: RowBox([0.5, 2**53 + 1], "replace"), InvalidParameterError, r"2\*\*53"),
        (
            lambda: FrobeniusBall(1.0, "replace").radius(3.0),  # type: ignore[arg-type]
            InvalidParameterError,
            "type float",
        ),
        (
            lambda: SymmetricBall(1.0, "replace").radius("x"),  # type: ignore[arg-type]
            InvalidParameterError,
            "type str",
        ),
        *(
            (lambda known=known: known.best_covariance(3), InvalidParameterError, "budget is a int")
            for known in SETS.values()
        ),
        (
            lambda: RowBox(np.ma.masked_array([1e-9, 2.0], mask=[True, False]), "replace"),
            InvalidParameterError,
            "masked",
        ),
        (
            lambda: RowBox([1e308, 1e308], "replace").radius(Isotropic(1e-5)),
            InvalidParameterError,
            "range of a float",
        ),
        (
            lambda: RowBox([1.0, 2.0], "replace").radius(Kronecker(np.eye(2), np.eye(1))),
            ShapeError,
            "1 columns",
        ),
    ],
)
def test_bad_sets(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
