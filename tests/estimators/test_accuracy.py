"""Accuracy of the estimators on the digits: floors at fixed noise, and less for less budget.

The floors are a few points below what the fixed noise gives; without noise about 0.93 to 0.96 of
the digits are classified.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from numpy.typing import NDArray

from estimators.examples import CLASSIFIERS
from matrixdp.estimators import PrivatePCA, PrivateRidge

FloatArray = NDArray[np.float64]
Digits = tuple[FloatArray, NDArray[Any], FloatArray, NDArray[Any]]
FLOORS = {
    "PrivateRidgeClassifier": {1.0: 0.70, 10.0: 0.88},
    "PrivateLinearDiscriminantAnalysis": {1.0: 0.55, 10.0: 0.88},
    "PrivateLogisticRegression": {1.0: 0.72, 10.0: 0.90},
}


@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_digits(
    kind: Any, relation: str, digits: Digits, numbered_keys: Callable[[], None]
) -> None:
    X, y, new_X, new_y = digits
    scores = {}
    for epsilon in (0.01, 1.0, 10.0):
        numbered_keys()
        model = kind(epsilon=epsilon, neighbouring=relation, data_norm=50.0, classes=range(10)).fit(
            X, y
        )
        scores[epsilon] = model.score(new_X, new_y)
    assert all(scores[epsilon] >= floor for epsilon, floor in FLOORS[kind.__name__].items())
    assert scores[0.01] < scores[1.0] < scores[10.0]


@pytest.mark.usefixtures("numbered_keys")
def test_components_of_digits(digits: Digits) -> None:
    X = digits[0]
    centred = X - X.mean(axis=0)
    best = (np.linalg.svd(centred, compute_uv=False)[:10] ** 2).sum()
    shares = []
    for epsilon in (0.01, 3.0):
        model = PrivatePCA(10, epsilon=epsilon, data_norm=55.0).fit(X)
        shares.append(np.linalg.norm(centred @ model.components_.T) ** 2 / best)
    assert shares[1] > 0.8
    assert shares[0] < 0.5


@pytest.mark.usefixtures("numbered_keys")
def test_regression() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1.0, 1.0, size=(5000, 10))
    y = X @ np.linspace(-1.0, 1.0, 10) + 0.1 * generator.standard_normal(5000)
    scores = [
        PrivateRidge(epsilon=epsilon, bounds=(-1, 1), target_bounds=(-4, 4)).fit(X, y).score(X, y)
        for epsilon in (0.01, 1.0)
    ]
    assert scores[1] > 0.9
    assert scores[0] < 0.5
