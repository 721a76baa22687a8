"""Bounds that are taken from the data: a warning names them, and no guarantee is claimed."""

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from estimators.examples import ALL, bounded, records, targets
from matrixdp.estimators import (
    PrivacyLeakWarning,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
)

NORM = "the largest row norm of X"
CLASSES = "the set of classes in y"
TARGETS = "the smallest and the largest target in y"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_leak_is_named(kind: Any) -> None:
    X, classes = records(100)
    expected = {PrivatePCA: (NORM,), PrivateRidge: (NORM, TARGETS)}.get(kind, (NORM, CLASSES))
    with pytest.warns(PrivacyLeakWarning) as caught:
        model = kind().fit(X, targets(kind, X, classes))
    assert model.leaks_ == expected
    assert model.guarantee_ is None
    assert len(caught) == len(expected)
    for warning, leak in zip(caught, expected, strict=True):
        assert leak in str(warning.message)
        assert "pass " in str(warning.message)
        assert warning.filename == __file__


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_public_bounds_do_not_warn(kind: Any) -> None:
    X, classes = records(100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = bounded(kind).fit(X, targets(kind, X, classes))
    assert model.guarantee_ is not None
    assert model.leaks_ == ()


def test_one_leak_is_enough_to_claim_nothing() -> None:
    X, classes = records(100)
    with pytest.warns(PrivacyLeakWarning, match="classes") as caught:
        model = PrivateLogisticRegression(bounds=(-3, 3)).fit(X, classes)
    assert len(caught) == 1
    assert model.guarantee_ is None
    # A second fit with public bounds claims again.
    assert model.set_params(classes=[0, 1, 2]).fit(X, classes).guarantee_ is not None


@pytest.mark.filterwarnings("ignore::matrixdp.estimators.PrivacyLeakWarning")
def test_data_without_any_spread() -> None:
    zeros = np.zeros((10, 3))
    assert PrivatePCA().fit(zeros).components_.shape == (3, 3)
    assert np.isfinite(PrivateRidge().fit(zeros, np.full(10, 7.0)).coef_).all()
    assert np.isfinite(PrivateRidge().fit(zeros, np.zeros(10)).intercept_)
