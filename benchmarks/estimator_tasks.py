"""Tasks to compare estimators on: arrays with public bounds, in files that every peer can read.

All features are fixed before a record is seen, and all bounds are public. Splits are those of
``docs/data.md``; the test records are only scored on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes

from matrixdp_experiments.datasets import DataSet, load_dataset
from matrixdp_experiments.datasets.adult import COLUMNS, Number
from matrixdp_experiments.features import ImageFeatures

_DIABETES_TRAINED = 300  # of 442 records, in the order of the file
_AGE = 0  # the column of Adult
# Eight categories, each of them one 1, and six numbers from 0 to 1 that are mostly small: between
# sqrt(8) and sqrt(14). Longer rows are scaled down.
_ADULT_NORM = 3.2


@dataclass(frozen=True, eq=False)
class Task:
    """Records to fit and to score, and what is publicly known of them.

    Attributes
    ----------
    kind : str
        "classes", "numbers" or "components".
    title : str
        In a few words.
    x_train, y_train, x_test, y_test : ndarray
        Records and targets; the targets of components are empty.
    norm : float
        A bound that rows are scaled down to.
    x_range, y_range : (float, float)
        Of every feature, and of the target.
    components : int
        How many are sought.
    """

    kind: str
    title: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    norm: float
    x_range: tuple[float, float] = (0.0, 1.0)
    y_range: tuple[float, float] = (0.0, 1.0)
    components: int = 0

    def save(self, path: Path) -> None:
        """Write everything into a ``.npz`` file."""
        np.savez(path, **vars(self))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return what `save` wrote."""
        with np.load(path) as file:
            fields = {name: file[name] for name in file.files}
        for name in ("kind", "title"):
            fields[name] = str(fields[name])
        for name in ("x_range", "y_range"):
            fields[name] = tuple(map(float, fields[name]))
        fields |= {"norm": float(fields["norm"]), "components": int(fields["components"])}
        return cls(**fields)


def _records(name: str) -> DataSet:
    data = load_dataset(name)
    if not isinstance(data, DataSet):
        raise TypeError(f"{name} is not a data set of records")
    return data


def mnist() -> Task:
    """Classes of digits from 400 features of norm 1."""
    data, features = _records("mnist"), ImageFeatures.of_strokes()
    train, test = (features((part.inputs[:, 0] + 1) / 2) for part in (data.train, data.test))
    title = "MNIST, class"
    return Task(
        *("classes", title, train, data.train.targets, test, data.test.targets, 1.0), (-1.0, 1.0)
    )


def adult() -> Task:
    """Income from all columns of Adult."""
    data = _records("adult")
    train, test = data.train, data.test
    return Task(
        *("classes", "Adult, income", train.inputs, train.targets, test.inputs, test.targets),
        _ADULT_NORM,
    )


def adult_age() -> Task:
    """Age, from 16 to 90 scaled to [0, 1], from all other columns of Adult."""
    data = _records("adult")
    (x_train, y_train), (x_test, y_test) = (
        (np.delete(part.inputs, _AGE, axis=1), part.inputs[:, _AGE])
        for part in (data.train, data.test)
    )
    return Task("numbers", "Adult, age", x_train, y_train, x_test, y_test, _ADULT_NORM)


def diabetes() -> Task:
    """Progression of diabetes from the body mass index alone: few records, and one column."""
    records, targets = load_diabetes(return_X_y=True, scaled=False)
    index, cut = records[:, [2]], _DIABETES_TRAINED
    return Task(
        *("numbers", "diabetes, progression from body mass index"),
        *(index[:cut], targets[:cut], index[cut:], targets[cut:]),
        norm=45.0,
        x_range=(15.0, 45.0),
        y_range=(0.0, 350.0),
    )


def adult_numbers() -> Task:
    """Two components of the six numbers of Adult: few enough columns for every peer."""
    data = _records("adult")
    # Half of the largest norm that six numbers from 0 to 1 can have.
    norm = 0.5 * float(np.sqrt(6))
    numbers = [start for start, column in COLUMNS if isinstance(column, Number)]
    return Task(
        *("components", "Adult, 2 components of 6 numbers", data.train.inputs[:, numbers]),
        *(np.empty(0), data.test.inputs[:, numbers], np.empty(0)),
        norm=norm,
        components=2,
    )


def mnist_components() -> Task:
    """Five components of digits whose pixels are averaged to 7 by 7."""
    data = _records("mnist")
    train, test = (
        ((part.inputs[:, 0] + 1) / 2).reshape(-1, 7, 4, 7, 4).mean(axis=(2, 4)).reshape(-1, 49)
        for part in (data.train, data.test)
    )
    # A quarter of the paper is ink, at most: sqrt(49 / 4) is 3.5.
    return Task(
        *("components", "MNIST at 7 x 7, 5 components", train, np.empty(0)),
        *(test, np.empty(0), 3.5),
        components=5,
    )


TASKS: dict[str, Callable[[], Task]] = {
    "mnist": mnist,
    "adult": adult,
    "adult_age": adult_age,
    "diabetes": diabetes,
    "adult_numbers": adult_numbers,
    "mnist_components": mnist_components,
}
