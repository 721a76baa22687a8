"""The estimators with public bounds, and data to fit them to."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from matrixdp.estimators import (
    PrivateLinearDiscriminantAnalysis,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
    PrivateRidgeClassifier,
    PrivateStandardScaler,
)

FloatArray = NDArray[np.float64]

TRANSFORMERS = (PrivatePCA, PrivateStandardScaler)
CLASSIFIERS = (
    PrivateRidgeClassifier,
    PrivateLinearDiscriminantAnalysis,
    PrivateLogisticRegression,
)
ALL = (*TRANSFORMERS, PrivateRidge, *CLASSIFIERS)


def bounded(kind: Any, **parameters: Any) -> Any:
    """Return an estimator of a kind whose bounds are all public."""
    known: dict[str, Any] = {"bounds": (-3.0, 3.0)} | parameters
    if kind is PrivateRidge:
        known.setdefault("target_bounds", (-4.0, 4.0))
    elif kind in CLASSIFIERS:
        known.setdefault("classes", [0, 1, 2])
    if known.get("data_norm") is not None and "bounds" not in parameters:
        del known["bounds"]
    return kind(**known)


def records(number: int = 400, width: int = 4, seed: int = 0) -> tuple[FloatArray, Any]:
    """Return records around three centres, and the index of each record's centre."""
    generator = np.random.default_rng(seed)
    classes = generator.integers(3, size=number)
    centres = np.array([[1.0, 0.0, 0.5, 0.0], [-1.0, 0.8, 0.0, 0.0], [0.0, -1.0, 0.0, 0.7]])
    X = centres[classes][:, :width] + 0.6 * generator.standard_normal((number, width))
    return np.clip(X, -2.9, 2.9), classes


def targets(kind: Any, X: FloatArray, classes: Any) -> Any:
    """Return what an estimator of a kind is fitted to."""
    return X @ np.arange(1.0, X.shape[1] + 1.0) / 4.0 + 0.5 if kind is PrivateRidge else classes
