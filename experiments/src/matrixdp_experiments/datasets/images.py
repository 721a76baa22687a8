"""MNIST, CIFAR-10 and SVHN: images of 8 bits, scaled to [-1, 1]."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp_experiments.datasets.arrays import ArrayFormat, check_labels, read_arrays
from matrixdp_experiments.datasets.records import DataSet, Records

__all__ = ["CIFAR10", "MNIST", "SVHN", "ImageFormat", "load_images", "read_images"]

_CLASSES = 10
# 0 becomes -1 and 255 becomes 1. A constant: a mean or deviation of the images would be private.
_HALF_RANGE = np.float32(127.5)


@dataclass(frozen=True)
class ImageFormat:
    """How many images a file has, of which shape, and how they are divided.

    Attributes
    ----------
    name : str
        Of the data set.
    shape : tuple of int
        Height and width, and the number of channels if there are several.
    train, test : int
        The number of images of each part of the file.
    choosing : int
        How many images at the end of the first part are for choosing hyper-parameters.
    final_run_has_all : bool
        Whether the final run also trains on those.
    """

    name: str
    shape: tuple[int, ...]
    train: int
    test: int
    choosing: int
    final_run_has_all: bool


MNIST = ImageFormat("mnist", (28, 28), 60_000, 10_000, 5_000, final_run_has_all=False)
CIFAR10 = ImageFormat("cifar10", (32, 32, 3), 50_000, 10_000, 5_000, final_run_has_all=True)
SVHN = ImageFormat("svhn", (32, 32, 3), 73_257, 26_032, 5_000, final_run_has_all=True)


def read_images(path: Path, form: ImageFormat) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of images, as they are in it.

    Returns
    -------
    dict of str to ndarray of uint8
        ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Raises
    ------
    FileFormatError
        If the file is damaged, or holds other images than it should.
    """
    expected = {}
    for part, count in (("train", form.train), ("test", form.test)):
        expected[f"x_{part}"] = ArrayFormat("uint8", (count, *form.shape))
        expected[f"y_{part}"] = ArrayFormat("uint8", (count,))
    arrays = read_arrays(path, expected)
    for name in ("y_train", "y_test"):
        check_labels(path, name, arrays[name], _CLASSES)
    return arrays


def load_images(path: Path, form: ImageFormat) -> DataSet:
    """Return a data set of images, scaled and divided.

    Raises
    ------
    FileFormatError
        If the file is damaged, or holds other images than it should.
    """
    arrays = read_images(path, form)
    # Taken out of the dictionary, so that no more than one part is in memory in both forms.
    everything = _records(arrays.pop("x_train"), arrays["y_train"])
    test = _records(arrays.pop("x_test"), arrays["y_test"])
    first = form.train - form.choosing
    choosing_train = everything.part(0, first)
    return DataSet(
        name=form.name,
        classes=_CLASSES,
        train=everything if form.final_run_has_all else choosing_train,
        choosing_train=choosing_train,
        choosing=everything.part(first, form.train),
        test=test,
    )


def _records(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Records:
    """Return images as float32 with the channels before height and width."""
    if images.ndim == 3:
        images = images[..., np.newaxis]
    channels_first = images.transpose(0, 3, 1, 2)
    scaled = np.empty(channels_first.shape, np.float32)
    np.divide(channels_first, _HALF_RANGE, out=scaled)
    scaled -= 1
    return Records(scaled, labels.astype(np.int64))
