"""Optimal shrinkage: closed forms, the losses they minimise, and noise that was really drawn."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from matrixdp import (
    Budget,
    Diagonal,
    InvalidParameterError,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.covariance import SymmetricDiagonal
from matrixdp.postprocess import (
    ProcessedRelease,
    SingularValueShrinkage,
    SingularValueThreshold,
    process,
)
from matrixdp.postprocess.shrinkage import Loss, shrunk
from matrixdp.queries import Gram, PublicBounds

FloatArray = NDArray[np.float64]
LOSSES: tuple[Loss, ...] = get_args(Loss)
NORMS: dict[Loss, Callable[[FloatArray], float]] = {
    "frobenius": lambda error: float(np.linalg.norm(error)),
    "operator": lambda error: float(np.linalg.norm(error, 2)),
    "nuclear": lambda error: float(np.linalg.norm(error, "nuc")),
}


def seen_at(true: float, beta: float) -> float:
    """Return where a true singular value is seen: Gavish and Donoho (2017)."""
    return float(np.sqrt((true + 1 / true) * (true + beta / true)))


def block(true: float, beta: float) -> tuple[FloatArray, FloatArray]:
    """Return the truth and the noisy direction, both in the plane that they span.

    The cosines are those of Gavish and Donoho (2017).
    """
    left = np.sqrt((true**4 - beta) / (true**4 + beta * true**2))
    right = np.sqrt((true**4 - beta) / (true**4 + true**2))
    direction = np.outer([left, np.sqrt(1 - left**2)], [right, np.sqrt(1 - right**2)])
    return np.diag([true, 0.0]), direction


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beta", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("excess", [1.05, 1.3, 2.0, 6.0])
def test_shrinkers_minimise_the_asymptotic_loss(loss: Loss, beta: float, excess: float) -> None:
    true = excess * beta**0.25
    truth, direction = block(true, beta)

    def lost(size: float) -> float:
        return NORMS[loss](truth - size * direction)

    found = float(shrunk(np.array([seen_at(true, beta)]), beta, loss)[0])
    grid = np.linspace(0.0, 3.0 * true + 1.0, 601)
    least = min(map(lost, grid))
    assert lost(found) <= least * (1 + 1e-12)
    # The loss is flat at its least, so that the place is less certain than the value.
    best = optimize.minimize_scalar(
        lost, bounds=(0.0, 3.0 * true + 1.0), method="bounded", options={"xatol": 1e-10}
    )
    assert found == pytest.approx(best.x, abs=2e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_symmetric_matrices_have_the_shrinkers_of_square_ones(loss: Loss) -> None:
    # An eigenvalue theta is seen at theta + 1/theta, with a squared cosine of 1 - 1/theta^2.
    for theta in (1.1, 1.5, 3.0):
        cosine = np.sqrt(1 - theta**-2)
        vector = np.array([cosine, 1 / theta])
        truth, direction = np.diag([theta, 0.0]), np.outer(vector, vector)
        found = float(shrunk(np.array([theta + 1 / theta]), 1.0, loss)[0])
        sizes = np.linspace(0.0, 5.0, 801)
        least = min(NORMS[loss](truth - size * direction) for size in sizes)
        assert NORMS[loss](truth - found * direction) <= least * (1 + 1e-12)


def test_the_operator_shrinker_beats_the_published_one() -> None:
    # Gavish and Donoho (2017) name x; Leeb (2020) gives the loss of the best one.
    for beta, true in ((0.1, 1.0), (0.5, 1.5)):
        truth, direction = block(true, beta)
        found = float(shrunk(np.array([seen_at(true, beta)]), beta, "operator")[0])
        assert found == pytest.approx(true * np.sqrt((true**2 + beta) / (true**2 + 1)))
        norm = NORMS["operator"]
        worse = norm(truth - true * direction)
        smaller = (true**4 - beta) / (true**4 + true**2)  # squared cosine
        assert norm(truth - found * direction) == pytest.approx(true * np.sqrt(1 - smaller))
        assert norm(truth - found * direction) < 0.99 * worse


def test_published_forms_for_square_matrices() -> None:
    # Gavish and Donoho (2017), where y = x + 1/x.
    true = np.array([1.2, np.sqrt(2.0), 2.0, 5.0])
    seen = true + 1 / true
    np.testing.assert_allclose(shrunk(seen, 1.0, "frobenius"), np.sqrt(seen**2 - 4), rtol=1e-12)
    np.testing.assert_allclose(shrunk(seen, 1.0, "operator"), true, rtol=1e-12)
    expected = np.maximum(true - 2 / true, 0.0)
    np.testing.assert_allclose(shrunk(seen, 1.0, "nuclear"), expected, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beta", [0.05, 1.0])
def test_nothing_below_the_edge_and_never_more_than_was_seen(loss: Loss, beta: float) -> None:
    edge = 1 + np.sqrt(beta)
    seen = np.append(np.linspace(0.0, 4 * edge, 500), [edge, np.nextafter(edge, 9.0), 1e9, 1e150])
    sizes = shrunk(np.sort(seen), beta, loss)
    assert np.isfinite(sizes).all()
    assert (sizes[np.sort(seen) <= edge] == 0.0).all()
    assert (np.diff(sizes) >= 0.0).all()
    assert (sizes <= np.sort(seen)).all()
    # What is far above the noise is left alone.
    assert sizes[-1] == pytest.approx(1e150)


def low_rank(rng: np.random.Generator, shape: tuple[int, int], sizes: list[float]) -> FloatArray:
    left = np.linalg.qr(rng.standard_normal((shape[0], len(sizes))))[0]
    right = np.linalg.qr(rng.standard_normal((shape[1], len(sizes))))[0]
    return np.asarray((left * sizes) @ right.T)


def symmetric_low_rank(rng: np.random.Generator, side: int, sizes: list[float]) -> FloatArray:
    vectors = np.linalg.qr(rng.standard_normal((side, len(sizes))))[0]
    matrix = (vectors * sizes) @ vectors.T
    return np.asarray((matrix + matrix.T) / 2)


def test_the_loss_of_drawn_noise_is_the_predicted_one() -> None:
    rng, shape, scale = np.random.default_rng(0), (150, 300), 0.7
    unit, true = scale * np.sqrt(300), [1.5, 2.5]
    covariance = Isotropic(scale)
    losses = []
    for _ in range(4):
        truth = low_rank(rng, shape, [unit * one for one in true])
        noisy = truth + covariance.colour(rng.standard_normal(shape))
        # Tall and wide matrices are shrunk alike.
        found = SingularValueShrinkage().apply(noisy, covariance)
        tall = SingularValueShrinkage().apply(noisy.T.copy(), covariance)
        np.testing.assert_allclose(tall, found.T, atol=1e-9)
        losses.append(np.sum(np.square(found - truth)) / unit**2)
    predicted = sum(
        float(np.min([np.sum(np.square(t - size * d)) for size in np.linspace(0, 4, 801)]))
        for t, d in (block(one, 0.5) for one in true)
    )
    assert np.mean(losses) == pytest.approx(predicted, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 0.75, 1.35, 1.8])
def test_another_noise_scale_would_do_worse_on_symmetric_noise(factor: float) -> None:
    # sqrt(2) is what a wrong reading of the scale off the diagonal would give.
    rng, side, scale = np.random.default_rng(1), 250, 3.0
    unit = scale * np.sqrt(side / 2)
    truth = symmetric_low_rank(rng, side, [2.0 * unit, -1.6 * unit, 1.4 * unit])
    covariance = SymmetricIsotropic(scale)
    right = wrong = 0.0
    for _ in range(3):
        noisy = truth + covariance.colour(rng.standard_normal((side, side)))
        step = SingularValueShrinkage()
        found = step.apply(noisy, covariance)
        assert np.array_equal(found, found.T)
        right += float(np.sum(np.square(found - truth)))
        wrong += float(np.sum(np.square(step.apply(noisy, covariance.scaled(factor)) - truth)))
    # theta^2 - (theta - 1/theta)^2 = 2 - 1/theta^2 for each eigenvalue, whatever its sign.
    predicted = unit**2 * sum(2 - theta**-2 for theta in (2.0, 1.6, 1.4))
    assert right / 3 == pytest.approx(predicted, rel=0.1)
    assert wrong > 1.02 * right


def test_symmetric_noise_alone_disappears() -> None:
    rng, covariance = np.random.default_rng(2), SymmetricIsotropic(2.0)
    noise = covariance.colour(rng.standard_normal((300, 300)))
    edge = np.max(np.abs(np.linalg.eigvalsh(noise)))
    assert edge == pytest.approx(2.0 * np.sqrt(2 * 300), rel=0.05)
    found = SingularValueShrinkage("operator").apply(noise, covariance)
    assert np.linalg.norm(found) < 0.2 * np.linalg.norm(noise)


@pytest.mark.parametrize("step", [SingularValueShrinkage(), SingularValueThreshold()])
def test_units_of_columns_do_not_matter(step: SingularValueShrinkage) -> None:
    scales = np.geomspace(1e-2, 1e4, 30)
    units = np.multiply.outer(scales, scales)
    rng, plain, scaled = (
        np.random.default_rng(4),
        SymmetricIsotropic(1.0),
        SymmetricDiagonal(scales),
    )
    vector = rng.standard_normal(30)
    truth = 4.0 * np.multiply.outer(vector, vector)
    seen = truth + plain.colour(rng.standard_normal((30, 30)))
    step.check((30, 30), scaled)
    found = step.apply(seen * units, scaled)
    np.testing.assert_allclose(found / units, step.apply(seen, plain), atol=1e-8)
    # In its units the error falls by more than half.
    assert np.linalg.norm(found / units - truth) < 0.5 * np.linalg.norm(seen - truth)
    assert np.array_equal(found, found.T)


def test_moments_with_ranges_of_their_own_are_shrunk(tmp_path: Path) -> None:
    bounds = PublicBounds(6, lower=0, upper=10.0 ** np.arange(6))
    records = np.random.default_rng(5).uniform(0, 10.0 ** np.arange(6), (50, 6))
    release = Gram(bounds, "replace").release(records, Budget(1.0, 1e-6))
    processed = process(release, SingularValueShrinkage())
    processed.save(tmp_path / "gram.csv")
    assert ProcessedRelease.load(tmp_path / "gram.csv").guarantee == release.guarantee


def test_bad_input_is_refused_by_name() -> None:
    for wrong in ("Frobenius", None, 2, np.array(["nuclear"])):
        with pytest.raises(InvalidParameterError, match=r"^loss="):
            SingularValueShrinkage(wrong)  # type: ignore[arg-type]
    step = SingularValueShrinkage()
    step.check((2, 2), Diagonal([[2.0, 2.0]]))
    for covariance in (Diagonal([[1.0, 2.0]]), Kronecker(rows=np.diag([1.0, 2.0]))):
        with pytest.raises(InvalidParameterError, match=r"one scale.*FrobeniusBall"):
            step.check((2, 2), covariance)
