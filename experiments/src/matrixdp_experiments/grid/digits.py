"""scikit-learn's digits as a toy: the whole path of an experiment, in seconds and without a fetch.

Every sixth record is for testing, and the record after it for choosing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from matrixdp.errors import MissingExtraError

__all__ = ["DigitRecords", "Digits", "digits_model", "load_digit_records"]


class DigitRecords(NamedTuple):
    """Some images, with values from 0 to 1, and their labels."""

    inputs: NDArray[np.float32]
    targets: NDArray[np.int64]


class Digits(NamedTuple):
    """The parts of the data set, under the names that all data sets have."""

    train: DigitRecords
    choosing_train: DigitRecords
    choosing: DigitRecords
    test: DigitRecords


def load_digit_records() -> Digits:
    """Return the 1,797 digits of scikit-learn, in their four parts."""
    try:
        # Late, as no other data set needs it.
        from sklearn.datasets import load_digits  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "the data set digits comes with scikit-learn: pip install scikit-learn"
        ) from None
    found = load_digits()
    images = (found.data / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = found.target.astype(np.int64)
    # By position instead of by a shuffle: no seed to be known, and all classes are in each part.
    number = np.arange(len(images)) % 6

    def part(mask: NDArray[np.bool_]) -> DigitRecords:
        return DigitRecords(images[mask], labels[mask])

    return Digits(
        train=part(number != 0),
        choosing_train=part(number > 1),
        choosing=part(number == 1),
        test=part(number == 0),
    )


def digits_model() -> nn.Module:
    """Return a convolution and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
