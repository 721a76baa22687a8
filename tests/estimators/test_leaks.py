"""Bounds that are taken from the data: a warning names them, and no guarantee is claimed."""

import itertools
import sys
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from estimators.examples import ALL, TRANSFORMERS, bounded, records, targets
from matrixdp.estimators import (
    PrivacyLeakWarning,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
)

# A second fit of one estimator is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::matrixdp.estimators.RepeatedSpendingWarning")

pd = pytest.importorskip("pandas", reason="frames are tested with pandas")

NORM = "the largest row norm of X"
CLASSES = "the set of classes in y"
TARGETS = "the smallest and the largest target in y"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_leak_is_named(kind: Any) -> None:
    X, classes = records(100)
    others = (NORM,) if kind in TRANSFORMERS else (NORM, CLASSES)
    expected = (NORM, TARGETS) if kind is PrivateRidge else others
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


def state_of(model: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if name.endswith("_")}


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore::matrixdp.estimators.PrivacyLeakWarning")
def test_a_refit_that_is_interrupted_anywhere_leaves_the_old_fit(kind: Any) -> None:
    """An old guarantee must not stand beside results of a fit that leaks."""
    X, classes = records(60)
    wide, few = np.column_stack([X, X]), {"max_iter": 1} if hasattr(kind(), "max_iter") else {}
    model = bounded(kind, **few).fit(X, targets(kind, X, classes))
    old = state_of(model)
    model.set_params(bounds=None)
    seen = 0

    def interrupt_at(line: int) -> Any:
        def local(_: Any, event: str, __: Any) -> Any:
            nonlocal seen
            seen += event == "line"
            if seen == line:
                raise KeyboardInterrupt
            return local

        return lambda frame, _, __: local if "estimators" in frame.f_code.co_filename else None

    for line in itertools.count(1):
        seen = 0
        sys.settrace(interrupt_at(line))
        try:
            model.fit(wide, targets(kind, X, classes))
        except KeyboardInterrupt:
            assert model.guarantee_ is not None or state_of(model)["n_features_in_"] == 8
            if model.guarantee_ is not None:
                assert state_of(model) == old
            continue
        finally:
            sys.settrace(None)
        break
    assert model.guarantee_ is None
    assert model.n_features_in_ == 8
    assert line > 20


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_a_refused_refit_leaves_the_old_fit(kind: Any) -> None:
    X, classes = records(60)
    y = targets(kind, X, classes)
    model = bounded(kind).fit(pd.DataFrame(X, columns=list("abcd")), y)
    old = state_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        with pytest.raises(PrivacyLeakWarning):
            model.set_params(bounds=None).fit(np.column_stack([X, X]), y)
    assert state_of(model) == old
    # A fit without names leaves none of those of the fit before.
    model.set_params(bounds=(-3, 3)).fit(X, y)
    assert not hasattr(model, "feature_names_in_")
