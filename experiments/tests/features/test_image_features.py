"""Features are fixed by strokes alone, one row of norm 1 for each image."""

import numpy as np
import pytest

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp_experiments.features import ImageFeatures, Whitening, pen_strokes

SMALL = ImageFeatures.of_strokes(side=8, columns=24, strokes=400, scales=1)


def test_strokes_are_centred_ink_on_paper() -> None:
    strokes = pen_strokes(200)
    assert strokes.min() == 0.0
    assert 0.9 < strokes.max() <= 1.0
    assert 0.05 < (strokes > 0.5).mean() < 0.3
    # Ink is centred before it saturates, hence not to the pixel.
    places = np.arange(28) - 13.5
    ink = strokes.sum(axis=(1, 2))
    for axis in (1, 2):
        centres = strokes.sum(axis=3 - axis) @ places / ink
        assert np.abs(centres).mean() < 1.0


def test_strokes_follow_their_seed() -> None:
    assert np.array_equal(pen_strokes(5, seed=1), pen_strokes(5, seed=1))
    assert not np.array_equal(pen_strokes(5, seed=1), pen_strokes(5, seed=2))
    # More of them begin with the same ones.
    assert np.array_equal(pen_strokes(5, seed=1), pen_strokes(9, seed=1)[:5])


@pytest.mark.parametrize("number", [0, -1, 2.5])
def test_no_strokes(number: int) -> None:
    with pytest.raises(InvalidParameterError, match="number"):
        pen_strokes(number)


def test_whitening_is_that_of_a_full_decomposition() -> None:
    generator = np.random.default_rng(0)
    scales = 2.0 ** -np.arange(30)
    turned = np.linalg.qr(generator.standard_normal((30, 30)))[0]
    rows = ((generator.standard_normal((500, 30)) * scales) @ turned + 3.0).astype(np.float32)
    found = Whitening.of(rows, 6)
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    variances = lengths**2 / len(rows)
    expected = directions[:6].T / np.sqrt(variances[:6] + variances[0] / 100)
    # Directions are determined up to their signs.
    signs = np.sign((found.directions * expected).sum(axis=0))
    assert np.allclose(found.directions * signs, expected, rtol=1e-3, atol=1e-3)
    assert np.allclose(found.centre, rows.mean(axis=0), atol=1e-5)


def test_rows_have_norm_one_and_the_centre_becomes_zero() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 10)).astype(np.float32)
    whitening = Whitening.of(rows, 4)
    assert np.allclose(np.linalg.norm(whitening(rows), axis=1), 1.0, atol=1e-6)
    assert not whitening(whitening.centre[None]).any()


def test_too_few_rows_to_whiten() -> None:
    with pytest.raises(ShapeError, match="at least 4"):
        Whitening.of(np.zeros((3, 10), np.float32), 4)


def test_a_row_depends_on_its_image_alone() -> None:
    images = pen_strokes(40, side=8, seed=1)
    rows = SMALL(images)
    assert rows.shape == (40, 24)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    assert np.allclose(SMALL(images[[11]]), rows[[11]], atol=1e-5)


def test_images_of_another_side() -> None:
    with pytest.raises(ShapeError, match="side 12"):
        SMALL(np.zeros((1, 12, 12)))


def test_features_tell_digits_apart() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn's digits")
    linear_model = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn")
    images, classes = datasets.load_digits(return_X_y=True)
    rows = SMALL(images.reshape(-1, 8, 8) / 16)
    model = linear_model.RidgeClassifier().fit(rows[:1200], classes[:1200])
    assert model.score(rows[1200:], classes[1200:]) > 0.8
