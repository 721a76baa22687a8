"""The real files, where there are any: their counts, and checksums of what they hold."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from matrixdp_experiments.datasets import DataSet, GraphData, TextData, load_dataset, missing_files
from matrixdp_experiments.datasets.cora import check_cora_content
from matrixdp_experiments.datasets.images import CIFAR10, MNIST, SVHN, ImageFormat, read_images
from matrixdp_experiments.gradients.settings import PAPER_DATASETS, SETTINGS

FOLDER = Path(os.environ.get("MATRIXDP_DATA", ""))

SVHN_DIGITS = {
    "y_train": [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659],
    "y_test": [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595],
}


def needs(name: str) -> None:
    if not os.environ.get("MATRIXDP_DATA"):
        pytest.skip("MATRIXDP_DATA does not name a folder of data sets")
    if missing_files(name, FOLDER):
        pytest.skip(f"{name} is not in the folder that MATRIXDP_DATA names")


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


# Of the decoded images. SVHN has none here: a copy that was cut from the full numbers again differs
# in the last bit of a few pixels.
@pytest.mark.parametrize(
    ("form", "train", "test"),
    [
        (
            MNIST,
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        ),
        (
            CIFAR10,
            "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ImageFormat) else "",
)
def test_images(form: ImageFormat, train: str, test: str) -> None:
    needs(form.name)
    arrays = read_images(FOLDER / f"{form.name}.npz", form)
    assert sha256(arrays["x_train"]) == train
    assert sha256(arrays["x_test"]) == test


@pytest.mark.parametrize("name", PAPER_DATASETS)
def test_share_of_the_most_frequent_class(name: str) -> None:
    needs(name)
    found = load_dataset(name, FOLDER)
    assert isinstance(found, DataSet | GraphData)
    targets = found.targets[found.test] if isinstance(found, GraphData) else found.test.targets
    share = np.bincount(targets).max() / len(targets)
    assert round(float(share), 4) == SETTINGS[name].commonest_class


def test_digits_of_svhn() -> None:
    needs("svhn")
    arrays = read_images(FOLDER / "svhn.npz", SVHN)
    for name, counts in SVHN_DIGITS.items():
        assert np.bincount(arrays[name]).tolist() == counts
    # The published means of the training images.
    means = arrays["x_train"].mean(axis=(0, 1, 2)) / 255
    np.testing.assert_allclose(means, [0.43768, 0.44377, 0.47280], atol=1e-5)


def test_mnist_is_divided() -> None:
    needs("mnist")
    data = load_dataset("mnist", FOLDER)
    assert isinstance(data, DataSet)
    parts = (data.train, data.choosing_train, data.choosing, data.test)
    assert [len(part) for part in parts] == [55_000, 55_000, 5_000, 10_000]
    assert (data.test.inputs.min(), data.test.inputs.max()) == (-1.0, 1.0)


def test_cora() -> None:
    needs("cora")
    check_cora_content(FOLDER / "cora.npz")
    data = load_dataset("cora", FOLDER)
    assert isinstance(data, GraphData)
    assert np.bincount(data.targets).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert data.adjacency.nnz == 2 * 5_278 + 2_708


def test_adult() -> None:
    needs("adult")
    data = load_dataset("adult", FOLDER)
    assert isinstance(data, DataSet)
    assert data.train.inputs.shape == (32_561, 105)
    assert [int(part.targets.sum()) for part in (data.train, data.test)] == [7_841, 3_846]
    # 30,162 and 15,060 records have no unknown category: eight ones beside the six numbers.
    numbers = [0, 9, 26, 61, 62, 63]
    for part, known in ((data.train, 30_162), (data.test, 15_060)):
        categories = np.delete(part.inputs, numbers, axis=1)
        assert int((categories.sum(axis=1) == 8).sum()) == known


def test_imdb() -> None:
    needs("imdb")
    data = load_dataset("imdb", FOLDER)
    assert isinstance(data, TextData)
    assert len(data.train_texts) == len(data.test_texts) == 25_000
    assert data.train_texts[0].startswith("Bromwell High is a cartoon comedy.")
