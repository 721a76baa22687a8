"""IMGM: the right scale, the right noise, and refusals before anything is drawn."""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from matrixdp import (
    IMGM,
    Budget,
    BudgetExceededError,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    Release,
    ReleaseKey,
    RowBounds,
    RowBox,
    SymmetricBall,
    SymmetricIsotropic,
)
from matrixdp.covariance import Covariance
from matrixdp.errors import ShapeError
from matrixdp.noise import add_noise, simulation_generator
from matrixdp.noise.application.add import PreparedNoise
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import SensitivitySet
from reference import ball as truth
from reference import dense

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
RNG = np.random.default_rng(5)


def keys(seed: int) -> Callable[[], ReleaseKey]:
    """Return a source of fixed keys, so that statistical tests give the same result every time."""
    bits = np.random.default_rng(seed)
    return lambda: ReleaseKey.from_bytes(bits.bytes(32))


@given(st.floats(0.01, 20), st.floats(1e-12, 0.1), st.floats(1e-3, 1e3))
def test_iid_noise_is_the_analytic_gaussian_on_the_flattened_matrix(
    epsilon: float, delta: float, bound: float
) -> None:
    mechanism = IMGM(FrobeniusBall(bound, neighbouring="replace"), Budget(epsilon, delta))
    assert isinstance(mechanism.covariance, Isotropic)
    analytic = bound / float(truth.true_bound(epsilon, delta).mid())
    assert mechanism.covariance.scale == pytest.approx(analytic, rel=1e-14)
    assert mechanism.covariance.scale >= analytic * (1 - 1e-16)
    matrix = RNG.standard_normal((4, 6))
    flat = mechanism.release(matrix.reshape(1, 24), key=ReleaseKey.from_bytes(bytes(32)))
    whole = mechanism.release(matrix, key=ReleaseKey.from_bytes(bytes(32)))
    assert flat.guarantee == whole.guarantee
    assert flat.noise_scale == whole.noise_scale


def test_t_fold_composition_is_a_split() -> None:
    once = IMGM(BALL, BUDGET).release(np.zeros((2, 2))).standard_errors()[0, 0]
    part = BUDGET.split(49)[0]
    each = IMGM(BALL, part).release(np.zeros((2, 2)))
    assert each.noise_scale == pytest.approx(7 * once, rel=1e-14)
    assert part.epsilon <= each.guarantee.epsilon <= part.epsilon * (1 + 1e-12)


CASES: dict[str, tuple[SensitivitySet, Covariance | None]] = {
    "ball": (BALL, None),
    "ball, rows": (BALL, Diagonal([[4.0], [5.0], [9.0]])),
    "ball, directional": (
        BALL,
        Kronecker(dense.random_definite(3, RNG), dense.random_definite(3, RNG)).rescaled_for(
            BALL, BUDGET
        ),
    ),
    "ball, more directional noise than needed": (
        BALL,
        Kronecker(30 * np.eye(3) + 10 * np.ones((3, 3)), dense.random_definite(3, RNG) + np.eye(3)),
    ),
    "symmetric": (SymmetricBall(0.5, neighbouring="add-remove"), None),
    "rows": (RowBounds([1.0, 0.2, 3.0], neighbouring="replace"), None),
    "box": (RowBox([0.1, 5.0, 1.0], neighbouring="replace"), None),
    "scaled": (ScaledBall(0.5, [1.0, 7.0, 0.1], [1.0, 0.2, 5.0], "replace"), None),
    "scaled symmetric": (ScaledSymmetricBall(0.5, [1.0, 100.0, 0.1], "replace"), None),
}


def whitened_samples(sensitivity: SensitivitySet, covariance: Covariance | None) -> np.ndarray:
    """Return the whitened noise of 3,000 releases of a 3 x 3 matrix, one row each."""
    mechanism = IMGM(sensitivity, BUDGET, covariance)
    matrix = 10 * dense.random_definite(3, np.random.default_rng(1))
    new_key = keys(17)
    rows = []
    for _ in range(3000):
        noise = mechanism.release(matrix, key=new_key()).value - matrix
        white = mechanism.covariance.whiten(noise)
        mirrored = mechanism.covariance.mirrored
        kept = np.triu_indices(3) if mirrored else np.ones((3, 3), bool)
        rows.append(white[kept])
    return np.array(rows)


def spread_p_value(samples: np.ndarray) -> float:
    """Return the two-sided p-value of the sum of squares being chi-square: unit variance."""
    lower = stats.chi2.cdf(float(np.sum(samples**2)), samples.size)
    return float(2 * min(lower, 1 - lower))


@pytest.mark.parametrize("case", CASES, ids=CASES)
def test_releases_have_the_covariance_they_claim(case: str) -> None:
    # 18,000 to 27,000 squares: their mean has relative error 0.011 at most, so scales of 0.9 and
    # 1.1 (squares off by 0.2) are rejected with certainty; the keys are fixed, so nothing flakes.
    samples = whitened_samples(*CASES[case])
    assert spread_p_value(samples) > 1e-3
    for wrong in (0.9, 1.1):
        assert spread_p_value(wrong * samples) < 1e-12
    correlation = np.corrcoef(samples.T)
    np.testing.assert_allclose(correlation, np.eye(len(correlation)), atol=5 / math.sqrt(3000))
    assert stats.kstest(samples.ravel(), "norm").pvalue > 1e-3


def test_symmetric_releases_are_symmetric() -> None:
    for ball in (
        SymmetricBall(1.0, neighbouring="replace"),
        ScaledSymmetricBall(1.0, np.arange(1.0, 21.0), neighbouring="replace"),
    ):
        mechanism = IMGM(ball, BUDGET)
        value = mechanism.release(np.eye(20)).value
        np.testing.assert_array_equal(value, value.T)
        with pytest.raises(InvalidParameterError, match="not symmetric"):
            mechanism.release(np.triu(np.ones((20, 20))))


def spied_scales(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Record the scales of everything that is drawn."""
    seen: list[np.ndarray] = []

    def spy(
        noise: PreparedNoise, matrix: np.ndarray, key: ReleaseKey, *, threads: int | None, pay: None
    ) -> np.ndarray:
        assert pay is None
        seen.append(np.broadcast_to(noise.scales, matrix.shape))
        return add_noise(matrix, noise.scales, key, threads=threads or 1)

    monkeypatch.setattr(PreparedNoise, "noisy_copy", spy)
    return seen


def test_the_promise_of_directional_noise_rests_on_its_exact_floor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = spied_scales(monkeypatch)
    for spread in (0.1, 2.0, 8.0):
        for grown in (1.0, 20.0):  # exactly what the budget needs, and far more
            covariance = Kronecker(
                dense.random_definite(3, RNG, spread), dense.random_definite(2, RNG, spread)
            )
            covariance = covariance.rescaled_for(BALL, BUDGET).scaled(grown)
            release = IMGM(BALL, BUDGET, covariance).release(np.zeros((3, 2)))
            scales = seen.pop()
            assert scales.shape == (6, 2)  # the floor, and under it what is added
            assert np.all(scales[:3] == scales[0, 0])
            floor = Fraction(scales[0, 0].item())
            assert Fraction(BALL.bound) / floor <= Fraction(release.guarantee.mu)
            assert release.guarantee.mu == pytest.approx(BUDGET.mu / grown, rel=1e-6)


def test_symmetric_pairs_are_drawn_once_at_no_less_than_their_scale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = spied_scales(monkeypatch)
    for bound in (1.0, 0.3, 7.7):
        release = IMGM(SymmetricBall(bound, neighbouring="replace"), BUDGET).release(np.eye(3))
        scales = [Fraction(scale) for scale in seen.pop().tolist()]
        assert len(scales) == 6
        own = [scales[0], scales[3], scales[5]]  # the diagonal of a packed upper triangle
        pairs = [scales[1], scales[2], scales[4]]
        mu = Fraction(release.guarantee.mu)
        assert all(Fraction(bound) / scale <= mu for scale in own)
        assert all(2 * scale**2 * mu**2 >= Fraction(bound) ** 2 for scale in pairs)


def test_noise_too_large_for_the_type_is_refused_first() -> None:
    key = ReleaseKey.generate()
    huge = Kronecker(1e60 * np.diag([1.0, 1e6]), np.eye(2))
    with pytest.raises(InvalidParameterError, match="float32"):
        IMGM(BALL, BUDGET, huge).release(np.zeros((2, 2), np.float32), key=key)
    key.check_unbound()


def test_a_small_covariance_is_refused_with_the_shortfall() -> None:
    with pytest.raises(BudgetExceededError, match=r"factor of 3\.7306"):
        IMGM(BALL, BUDGET, Isotropic(1.0))
    tight = Isotropic(1.0).rescaled_for(BALL, BUDGET)
    assert IMGM(BALL, BUDGET, tight).mu <= BUDGET.mu


@pytest.mark.parametrize("case", ["rows", "box", "symmetric"])
def test_full_covariances_off_the_ball_are_judged_but_not_released(case: str) -> None:
    sensitivity, _ = CASES[case]
    full = Kronecker(dense.random_definite(3, RNG), dense.random_definite(3, RNG))
    mechanism = IMGM(sensitivity, BUDGET, full.rescaled_for(sensitivity, BUDGET))
    assert mechanism.guarantee.mu <= BUDGET.mu
    with pytest.raises(InvalidParameterError, match=r"judged .* but not released"):
        mechanism.release(np.eye(3))


def test_dtypes() -> None:
    mechanism = IMGM(BALL, BUDGET)
    assert mechanism.release(np.zeros((2, 2), np.float32)).value.dtype == np.float32
    for dtype in (np.int8, np.uint64, bool, ">f8"):
        assert mechanism.release(np.ones((2, 2), dtype)).value.dtype == np.float64
    assert mechanism.release([[1, 2], [3, 4]]).value.shape == (2, 2)
    assert mechanism.release(np.array([[2**53, -(2**53)]])).shape == (1, 2)
    for hidden in (
        np.array([[2**53 + 1]]),
        [[2**60 + 127, 0.5]],
        [[2**63 + 1, -1]],
        [(0.5, -(2**53) - 1)],
    ):
        with pytest.raises(InvalidParameterError, match=r"2\*\*53"):
            mechanism.release(hidden)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_integers_hidden_among_floats_are_refused(library: str) -> None:
    frames = pytest.importorskip(library)
    with pytest.raises(InvalidParameterError, match=r"2\*\*53"):
        IMGM(BALL, BUDGET).release(frames.DataFrame({"n": [2**60 + 127], "x": [0.5]}))
    mixed = frames.DataFrame({"n": [2**53], "x": [0.5]})
    assert IMGM(BALL, BUDGET).release(mixed).shape == (1, 2)


def test_sparse_columns_are_refused() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 1.0])})
    with pytest.raises(InvalidParameterError, match="to_dense"):
        IMGM(BALL, BUDGET).release(frame)


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        (np.zeros((0, 3)), ShapeError, "empty"),
        (np.zeros(3), ShapeError, "two axes"),
        (np.zeros((2, 2, 2)), ShapeError, "two axes"),
        (np.zeros((2, 2), complex), InvalidParameterError, "complex"),
        (np.zeros((2, 2), object), InvalidParameterError, "object"),
        (np.zeros((2, 2), np.float16), InvalidParameterError, "float16"),
        (np.zeros((2, 2), np.longdouble), InvalidParameterError, "float"),
        (np.array([["a"]]), InvalidParameterError, "dtype"),
        (np.array([[np.nan]]), InvalidParameterError, "NaN or infinity"),
        (np.array([[1.0, -np.inf]]), InvalidParameterError, "NaN or infinity"),
        ([[1.0], [1.0, 2.0]], ShapeError, "ragged"),
        (np.ma.masked_array(np.zeros((2, 2))), InvalidParameterError, "MaskedArray"),
        (sparse.csr_matrix((2, 2)), InvalidParameterError, "toarray"),
        (sparse.coo_array((2, 2)), InvalidParameterError, "toarray"),
        ("matrix", InvalidParameterError, "str"),
        (None, InvalidParameterError, "NoneType"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_bad_matrices_cost_nothing(matrix: object, error: type[Exception], message: str) -> None:
    key = ReleaseKey.generate()
    with pytest.raises(error, match=message):
        IMGM(BALL, BUDGET).release(matrix, key=key)
    key.check_unbound()  # nothing was drawn with it


def test_a_key_is_a_key() -> None:
    with pytest.raises(InvalidParameterError, match="key is a str"):
        IMGM(BALL, BUDGET).release(np.zeros((2, 2)), key="x")  # type: ignore[arg-type]


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="3 rows"):
        IMGM(CASES["rows"][0], BUDGET).release(np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="3 columns"):
        IMGM(CASES["box"][0], BUDGET).release(np.zeros((3, 2)))
    with pytest.raises(ShapeError, match="columns is a covariance of"):
        IMGM(BALL, BUDGET, Kronecker(99 * np.eye(2), np.eye(2))).release(np.zeros((2, 3)))
    with pytest.raises(InvalidParameterError, match="not symmetric"):
        IMGM(CASES["symmetric"][0], BUDGET).release(np.array([[0.0, 1.0], [2.0, 0.0]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, BUDGET), "sensitivity is a float"),
        ((BALL, 1.0), "budget is a float"),
        ((BALL, BUDGET, 4.0), "covariance is a float"),
        ((BALL, BUDGET, SymmetricIsotropic(9.0)), "SymmetricBall"),
    ],
)
def test_bad_mechanisms(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        IMGM(*arguments)  # type: ignore[arg-type]


def test_simulation_has_the_same_covariance_and_is_no_release() -> None:
    covariance = Kronecker(dense.random_definite(3, RNG), dense.random_definite(3, RNG))
    mechanism = IMGM(BALL, BUDGET, covariance.rescaled_for(BALL, BUDGET))
    generator = simulation_generator(3)
    samples = np.array(
        [
            mechanism.covariance.whiten(mechanism.simulate(np.zeros((3, 3)), generator).array)
            for _ in range(2000)
        ]
    )
    assert spread_p_value(samples) > 1e-3
    simulated = mechanism.simulate(np.zeros((3, 3)), generator)
    single = mechanism.simulate(np.zeros((3, 3), np.float32), generator)
    assert single.array.dtype == np.float32
    with pytest.raises(InvalidParameterError, match="generator must be a numpy Generator, got int"):
        mechanism.simulate(np.zeros((3, 3)), 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="simulated"):
        Release(
            value=simulated,
            sensitivity=BALL,
            covariance=mechanism.covariance,
            guarantee=mechanism.guarantee,
            mechanism="IMGM",
        )
    again = mechanism.simulate(np.zeros((3, 3)), simulation_generator(3)).array
    np.testing.assert_array_equal(
        again, mechanism.simulate(np.zeros((3, 3)), simulation_generator(3)).array
    )


def test_what_is_to_be_released_is_never_shown() -> None:
    shown = repr(IMGM(BALL, BUDGET).checked([[123.456, 2.0]]))
    assert shown == "CheckedMatrix(shape=(1, 2), dtype='float64')"
