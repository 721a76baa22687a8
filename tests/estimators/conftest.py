"""Noise that is the same in every run, and the digits."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.noise import ReleaseKey

FloatArray = NDArray[np.float64]
Digits = tuple[FloatArray, NDArray[Any], FloatArray, NDArray[Any]]


@pytest.fixture
def numbered_keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Draw from keys 1, 2, 3 and so on; a call starts again with the first."""
    numbers = count(1)

    def generate() -> ReleaseKey:
        return ReleaseKey.from_bytes(next(numbers).to_bytes(32, "big"))

    def start_again() -> None:
        nonlocal numbers
        numbers = count(1)

    monkeypatch.setattr(ReleaseKey, "generate", generate)
    return start_again


@pytest.fixture
def same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise for every release of one shape."""
    monkeypatch.setattr(ReleaseKey, "generate", lambda: ReleaseKey.from_bytes(bytes(range(32))))


@pytest.fixture(scope="session")
def digits() -> Digits:
    """Return records and classes to fit, and others to score; pixels are from 0 to 16."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - an extra

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(1).permutation(len(X))
    X, y = X[order], y[order]
    return X[:1297], y[:1297], X[1297:], y[1297:]
