"""Scores of estimators on records that they were not fitted to; needs numpy only."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def score(kind: str, model: Any, x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return the accuracy in per cent, R squared, or the share of variance that is captured."""
    if kind == "classes":
        return 100.0 * float(np.mean(model.predict(x) == y))
    if kind == "numbers":
        return 1.0 - float(np.sum((model.predict(x) - y) ** 2) / np.sum((y - y.mean()) ** 2))
    return captured(model, x)


def captured(model: Any, x: NDArray[Any]) -> float:
    """Return one minus the error of reconstruction over the variance, both about the true mean.

    Components are made orthonormal first. A model with a wrong mean is charged for it, except
    within the components, which would make up for it.
    """
    basis = np.linalg.qr(np.asarray(model.components_, dtype=np.float64).T)[0]
    moved = x - np.asarray(model.mean_)
    rest = moved - moved @ basis @ basis.T
    return 1.0 - float(np.sum(rest**2) / np.sum((x - x.mean(axis=0)) ** 2))
