"""Ridge regression on CTG with public bounds, a norm beside them, and a private scaler.

Run with ``make benchmark-bounds CTG=ctg.csv``. That is the table of Cardiotocography (UCI Machine
Learning Repository, 2010) with its 21 features, ``CLASS`` and ``NSP``, of which NSP is predicted.
The ranges are those of the table: they stand for what is known about such features.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from saved import save
from sklearn.model_selection import ShuffleSplit
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.estimators import (
    PrivatePipeline,
    PrivateRidgeClassifier,
    PrivateStandardScaler,
    RepeatedSpendingWarning,
)

EPSILON = 3.0
SPLITS = 30
FEATURES = 21
CLASSES = (1, 2, 3)


def ridge(**bounds: Any) -> PrivateRidgeClassifier:
    """Return the classifier with all of the budget."""
    return PrivateRidgeClassifier(epsilon=EPSILON, classes=CLASSES, **bounds)


def scaled(**bounds: Any) -> PrivatePipeline:
    """Return a scaler with bounds, and the classifier behind it."""
    last = PrivateRidgeClassifier(data_norm=3.0, classes=CLASSES)
    steps = [("scale", PrivateStandardScaler(**bounds)), ("last", last)]
    return PrivatePipeline(steps, epsilon=EPSILON)


def makers(lower: Any, upper: Any) -> dict[str, Callable[[], Any]]:
    """Return what is compared."""
    middle, half = (lower + upper) / 2.0, (upper - lower) / 2.0
    ranges, wide = (lower, upper), (middle - 5.0 * half, middle + 5.0 * half)
    return {
        "bounds": lambda: ridge(bounds=ranges),
        "bounds and data_norm=2": lambda: ridge(bounds=ranges, data_norm=2.0),
        "wide bounds": lambda: ridge(bounds=wide),
        "wide bounds of a scaler": lambda: scaled(bounds=wide),
    }


def main() -> int:
    """Print the mean accuracies over random splits, and save them if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ctg", type=Path)
    parser.add_argument("--save", action="store_true")
    table = np.loadtxt(parser.parse_args().ctg, delimiter=",", skiprows=1)
    records, classes = table[:, :FEATURES], table[:, -1].astype(int)
    figures = {"largest class": float(np.mean(classes == CLASSES[0]))}
    splits = list(ShuffleSplit(SPLITS, test_size=0.2, random_state=0).split(records))
    warnings.simplefilter("ignore", RepeatedSpendingWarning)
    with threadpool_limits(limits=1):
        for name, made in makers(records.min(axis=0), records.max(axis=0)).items():
            scores = [
                made().fit(records[kept], classes[kept]).score(records[held], classes[held])
                for kept, held in splits
            ]
            figures[name] = float(np.mean(scores))
    for name, figure in figures.items():
        print(f"{name:28} {figure:.4f}")
    save("estimator_bounds", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
