"""Files of images: scaled by constants, divided as stated, and refused if they are others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp_experiments.datasets.images import ImageFormat, load_images
from small_files import image_arrays

COLOUR = ImageFormat("svhn", (4, 4, 3), 12, 5, 3, final_run_has_all=True)
GREY = ImageFormat("mnist", (6, 5), 12, 5, 3, final_run_has_all=False)


def written(folder: Path, **changes: NDArray[Any] | None) -> Path:
    arrays: dict[str, Any] = image_arrays(12, 5, COLOUR.shape) | changes
    path = folder / "svhn.npz"
    np.savez_compressed(path, **{name: part for name, part in arrays.items() if part is not None})
    return path


def test_scaling_and_layout(tmp_path: Path) -> None:
    images = image_arrays(12, 5, COLOUR.shape)["x_train"]
    images[0, 0, 0] = [0, 255, 51]
    data = load_images(written(tmp_path, x_train=images), COLOUR)
    assert data.train.inputs.dtype == np.float32
    assert data.train.inputs.shape == (12, 3, 4, 4)
    np.testing.assert_allclose(data.train.inputs[0, :, 0, 0], [-1.0, 1.0, -0.6], rtol=1e-6)
    np.testing.assert_allclose(
        data.train.inputs[7, 2], images[7, :, :, 2] / 127.5 - 1, rtol=1e-5, atol=1e-6
    )
    assert data.train.targets.dtype == np.int64
    assert (data.name, data.classes, len(data.test)) == ("svhn", 10, 5)


def test_the_last_ones_are_for_choosing(tmp_path: Path) -> None:
    data = load_images(written(tmp_path), COLOUR)
    assert [len(part) for part in (data.train, data.choosing_train, data.choosing)] == [12, 9, 3]
    np.testing.assert_array_equal(data.choosing.inputs, data.train.inputs[9:])
    # Views, not copies: the largest of the data sets takes almost a gigabyte.
    assert np.shares_memory(data.choosing_train.inputs, data.train.inputs)


def test_grey_images_get_a_channel_and_mnist_never_trains_on_what_chooses(tmp_path: Path) -> None:
    path = tmp_path / "mnist.npz"
    np.savez(path, **image_arrays(12, 5, GREY.shape))  # type: ignore[arg-type]
    data = load_images(path, GREY)
    assert data.train.inputs.shape == (9, 1, 6, 5)
    assert len(data.choosing) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "no array 'y_test'"),
        ({"x_test": np.zeros((5, 4, 4, 3), np.float32)}, "'x_test' of float32"),
        ({"x_train": np.zeros((11, 4, 4, 3), np.uint8)}, r"shape \(11, 4, 4, 3\) instead of"),
        ({"y_train": np.full(12, 10, np.uint8)}, "a label above 9 in 'y_train'"),
        ({"x_train": np.array([{}], object)}, "cannot be read"),
    ],
)
def test_wrong_files(tmp_path: Path, changes: dict[str, NDArray[Any] | None], message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as caught:
        load_images(written(tmp_path, **changes), COLOUR)
    assert "svhn.npz" in str(caught.value)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.98])
def test_files_that_are_cut_short(tmp_path: Path, part: float) -> None:
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileFormatError, match=r"svhn\.npz cannot be read"):
        load_images(path, COLOUR)
