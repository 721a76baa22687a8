"""Pipelines, clones and searches: estimators work in them, and warn where many fits spend."""

import importlib
import math
import re
import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

from estimators.examples import ALL, CLASSIFIERS, bounded, records, targets
from matrixdp import Budget, InvalidParameterError
from matrixdp.estimators import (
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
    PrivateRidgeClassifier,
    RepeatedSpendingWarning,
)

joblib = pytest.importorskip("joblib", reason="comes with scikit-learn")
pd = pytest.importorskip("pandas", reason="frames are tested with pandas")
each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)


@each_kind
def test_clones_have_the_same_parameters_and_are_not_fitted(kind: Any) -> None:
    X, classes = records(100)
    model = bounded(kind, epsilon=2.5, bounds=([-3.0] * 4, [3.0] * 4))
    model.fit(X, targets(kind, X, classes))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "guarantee_")


def test_a_pipeline_of_two_private_steps() -> None:
    X, classes = records(1000)
    pipeline = make_pipeline(
        bounded(PrivatePCA, n_components=3),
        PrivateRidgeClassifier(data_norm=4.0, classes=[0, 1, 2]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one fit of each: nothing to warn of
        assert pipeline.fit(X, classes).predict(X).shape == (1000,)
    assert all(step.guarantee_.mu > 0.26 for step in pipeline)


def message(warning: warnings.WarningMessage) -> str:
    return str(warning.message)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_grid_search_warns(jobs: int) -> None:
    X, classes = records(200)
    search = GridSearchCV(bounded(PrivateRidgeClassifier), {"alpha": [1.0, 10.0]}, cv=2)
    with (
        joblib.parallel_config("threading", n_jobs=jobs),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        search.fit(X, classes)
    # Two candidates on two folds each, and the best once more on all records: five fits.
    assert len(caught) == 4
    for warning in caught:
        assert warning.category is RepeatedSpendingWarning
        text = str(warning.message)
        for words in ("of this estimator and its clones", "mu=0.", "not private", "split"):
            assert words in text
    five = math.sqrt(5.0) * Budget(1.0, 1e-5).mu
    (shown,) = re.findall(r"fit number 5 .* mu=([0-9.]+)", " ".join(map(message, caught)))
    assert five <= float(shown) < 1.0001 * five
    assert search.best_estimator_.guarantee_.epsilon == 1.0


@pytest.mark.parametrize("validation", [cross_val_score, cross_val_predict])
def test_cross_validation_warns(validation: Any) -> None:
    X, classes = records(200)
    with pytest.warns(RepeatedSpendingWarning) as caught:
        validation(bounded(CLASSIFIERS[1]), X, classes, cv=3)
    assert len(caught) == 2


def test_an_ensemble_warns() -> None:
    X, classes = records(200)
    with pytest.warns(RepeatedSpendingWarning, match="fit number 2"):
        BaggingClassifier(bounded(CLASSIFIERS[1]), n_estimators=2).fit(X, classes)


def test_a_robust_regression_warns() -> None:
    X, classes = records(200)
    model = bounded(PrivateRidge)
    robust = RANSACRegressor(model, min_samples=20, residual_threshold=100.0, max_trials=2)
    with pytest.warns(RepeatedSpendingWarning, match="fit number 2"):
        robust.fit(X, targets(PrivateRidge, X, classes))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_imputation_warns() -> None:
    importlib.import_module("sklearn.experimental.enable_iterative_imputer")
    imputer = importlib.import_module("sklearn.impute").IterativeImputer
    X, _ = records(200)
    X[0, 0] = np.nan
    with pytest.warns(RepeatedSpendingWarning, match="fit number 2"):
        imputer(bounded(PrivateRidge), max_iter=2, skip_complete=True).fit(X)


def test_private_steps_of_a_pipeline_warn_too() -> None:
    X, classes = records(200)
    pipeline = make_pipeline(
        bounded(PrivatePCA), PrivateLogisticRegression(data_norm=5.0, classes=[0, 1, 2])
    )
    with pytest.warns(RepeatedSpendingWarning) as caught:
        cross_val_score(pipeline, X, classes, cv=3)
    assert len(caught) == 4


def test_a_second_fit_warns_where_it_was_called() -> None:
    X, classes = records(200)
    model = bounded(PrivateRidgeClassifier).fit(X, classes)
    with pytest.warns(RepeatedSpendingWarning, match="fit number 2") as caught:
        model.fit(X, classes)
    assert caught[0].filename == __file__
    with pytest.warns(RepeatedSpendingWarning, match="fit number 3"):
        clone(model).fit(X, classes)
    # A refused fit has spent nothing.
    with pytest.raises(InvalidParameterError):
        model.fit(X, classes[1:])
    with pytest.warns(RepeatedSpendingWarning, match="fit number 4"):
        model.fit(X, classes)


def test_frames_and_names() -> None:
    X, classes = records(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    for kind in ALL:
        model = bounded(kind).fit(frame, pd.Series(targets(kind, X, classes)))
        assert list(model.feature_names_in_) == list(frame.columns)
        assert model.n_features_in_ == 4
    labels = pd.Series(np.array(["no", "yes"])[np.minimum(classes, 1)])
    model = bounded(CLASSIFIERS[0], classes=["yes", "no"]).fit(frame, labels)
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(frame)) <= {"no", "yes"}
    coordinates = bounded(PrivatePCA).set_output(transform="pandas").fit_transform(frame)
    assert list(coordinates.columns) == [f"privatepca{i}" for i in range(4)]


@pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.__name__)
def test_a_public_class_may_have_no_record(kind: Any) -> None:
    X, classes = records(1000)
    model = bounded(kind, classes=[0, 1, 2, 7]).fit(X, classes)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert np.isfinite(model.decision_function(X)).all()
