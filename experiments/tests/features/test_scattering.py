"""The transform agrees with kymatio, and with convolutions that are summed up in space."""

import csv
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp_experiments.features import scattering
from matrixdp_experiments.features.scattering import gaussian_window, morlet_wavelet

REFERENCE = Path(__file__).resolve().parents[1] / "reference" / "scattering.csv"


def waves(side: int) -> NDArray[np.float64]:
    row, column = np.mgrid[0:side, 0:side]
    return np.asarray(
        0.5 + 0.5 * np.sin(0.11 * row**2 + 0.7 * column) * np.cos(0.05 * column**2 - 0.3 * row)
    )


def test_agrees_with_kymatio() -> None:
    # kymatio 0.3.0, Scattering2D(J=2, shape=(24, 24), L=8, pre_pad=True) of `waves(28)` with two
    # pixels of 0 on each side. Rows and columns are counted from the padded border.
    ours = scattering(waves(28)[None])[0]
    with REFERENCE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 81
    for row in rows:
        number = int(row["map"])
        filters = 1 + (number > 0) + (number > 16)
        # kymatio normalises each filter with 3.1415 for pi, and cuts the filters of coarse grids
        # off above the highest frequency where ours have aliases.
        expected = float(row["value"]) * (3.1415 / np.pi) ** filters
        tolerance = 1e-6 if number < 9 else 5e-4
        assert abs(ours[number, int(row["row"]), int(row["column"])] - expected) < tolerance


def convolved(image: NDArray[np.float64], kernel: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Return the periodic convolution, as the sum that defines it."""
    side = len(image)
    result = np.zeros((side, side), complex)
    for row in range(side):
        for column in range(side):
            result += kernel[row, column] * np.roll(image, (row, column), axis=(0, 1))
    return result


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 1)])
def test_second_order_as_sums_in_space(first: int, second: int) -> None:
    side, turns = 16, 4
    image = np.zeros((side, side))
    image[2:-2, 2:-2] = waves(12)
    angles = [np.pi * (turns // 2 - 1 - turn) / turns for turn in range(turns)]
    fine, coarse = (
        morlet_wavelet(
            side,
            width=0.8 * 2.0**scale,
            frequency=0.75 * np.pi / 2.0**scale,
            angle=angles[turn],
            slant=4.0 / turns,
        )
        for scale, turn in ((0, first), (1, second))
    )
    average = gaussian_window(side, width=1.6, angle=0.0, slant=1.0)
    once = np.abs(convolved(image, fine))
    # The coarse maps live on every second pixel; there the filter is 4 times every second value.
    twice = np.abs(convolved(once, coarse))[::2, ::2]
    expected = convolved(twice, 4.0 * average[::2, ::2]).real[::2, ::2]
    found = scattering(waves(12)[None], orientations=turns)[0]
    assert np.allclose(found[1 + 2 * turns + turns * first + second], expected, atol=1e-6)


def test_wavelets_do_not_see_a_constant() -> None:
    wavelet = morlet_wavelet(16, width=0.8, frequency=0.75 * np.pi, angle=0.3, slant=0.5)
    window = gaussian_window(16, width=1.6, angle=0.0, slant=1.0)
    assert abs(wavelet.sum()) < 1e-12
    assert window.sum() == pytest.approx(1.0, abs=1e-9)


def test_a_quarter_turn_permutes_orientations() -> None:
    image = np.pad(waves(24), 2)[None]
    turned = np.rot90(image, axes=(1, 2))
    maps, others = scattering(image)[0], scattering(turned)[0]
    # The grid of a turned image starts at another pixel, so sums over the image are compared.
    sums, turned_sums = maps.sum(axis=(1, 2)), others.sum(axis=(1, 2))
    assert np.allclose(np.roll(sums[1:9], 4), turned_sums[1:9], rtol=0.02)
    assert not np.allclose(sums[1:9], turned_sums[1:9], rtol=0.02)


def test_each_image_by_itself() -> None:
    images = np.random.default_rng(0).uniform(size=(300, 12, 12))
    together = scattering(images)
    assert np.allclose(scattering(images[[7, 299]]), together[[7, 299]], atol=1e-6)


@pytest.mark.parametrize(
    ("images", "error"),
    [
        (np.zeros((28, 28)), ShapeError),
        (np.zeros((2, 28, 14)), ShapeError),
        (np.zeros((0, 28, 28)), ShapeError),
        (np.full((1, 8, 8), np.nan), InvalidParameterError),
        (np.full((1, 8, 8), "ink"), InvalidParameterError),
    ],
)
def test_what_is_no_image(images: NDArray[np.float64], error: type[Exception]) -> None:
    with pytest.raises(error, match="images"):
        scattering(images)


@pytest.mark.parametrize("name", ["scales", "orientations"])
def test_wrong_numbers(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        scattering(np.zeros((1, 8, 8)), **{name: 0})
