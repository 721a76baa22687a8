"""With hardly any noise, private estimators are scikit-learn's, for either relation and bound."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier

from estimators.examples import FloatArray, records
from matrixdp.estimators import (
    PrivateLinearDiscriminantAnalysis,
    PrivateLogisticRegression,
    PrivatePCA,
    PrivateRidge,
    PrivateRidgeClassifier,
)

pytestmark = pytest.mark.usefixtures("numbered_keys")

# A box with ranges that differ a thousandfold and are not centred, a norm, and both.
FACTORS = np.array([1.0, 300.0, 1.0, 0.1])
SHIFTS = np.array([2.0, -100.0, 0.0, 0.5])
BOX: dict[str, Any] = {"bounds": (SHIFTS - 3.0 * FACTORS, SHIFTS + 3.0 * FACTORS)}
KINDS: dict[str, dict[str, Any]] = {
    "box": BOX,
    "norm": {"data_norm": 6.0},
    "both": BOX | {"data_norm": 1.9},
}
either_relation = pytest.mark.parametrize("relation", ["replace", "add-remove"])
each_bound = pytest.mark.parametrize("kind", KINDS)


def data(kind: str, number: int = 3000) -> tuple[FloatArray, Any, dict[str, Any]]:
    X, classes = records(number)
    return X if kind == "norm" else X * FACTORS + SHIFTS, classes, KINDS[kind]


def scaled(X: FloatArray, kind: str) -> FloatArray:
    """Return the features that penalties are in the units of."""
    return X if kind == "norm" else (X - SHIFTS) / (3.0 * FACTORS)


def generous(relation: str, bounds: dict[str, Any]) -> dict[str, Any]:
    return {"epsilon": 1e6, "neighbouring": relation, **bounds}


@either_relation
@each_bound
def test_ridge(relation: str, kind: str) -> None:
    X, _, bounds = data(kind)
    y = X @ [1.0, 0.002, -0.5, 3.0] + 1.5
    model = PrivateRidge(alpha=20.0, target_bounds=(-10, 10), **generous(relation, bounds))
    Z = scaled(X, kind)
    reference = Ridge(alpha=20.0).fit(Z, y)
    model.fit(X, y)
    np.testing.assert_allclose(model.predict(X), reference.predict(Z), atol=0.02)
    assert model.score(X, y) == pytest.approx(reference.score(Z, y), abs=1e-3)


@either_relation
@each_bound
@pytest.mark.parametrize("number", [2, 3])
def test_ridge_classifier(relation: str, kind: str, number: int) -> None:
    X, classes, bounds = data(kind)
    y = np.array(["a", "b", "c"])[np.minimum(classes, number - 1)]
    listed = ["c", "b", "a"][3 - number :]
    model = PrivateRidgeClassifier(alpha=20.0, classes=listed, **generous(relation, bounds))
    Z = scaled(X, kind)
    reference = RidgeClassifier(alpha=20.0).fit(Z, y)
    model.fit(X, y)
    assert model.coef_.shape == (1 if number == 2 else number, 4)
    np.testing.assert_allclose(
        model.decision_function(X), reference.decision_function(Z), atol=0.01
    )
    assert np.mean(model.predict(X) == reference.predict(Z)) > 0.995


@either_relation
@each_bound
@pytest.mark.parametrize("number", [2, 3])
def test_linear_discriminant(relation: str, kind: str, number: int) -> None:
    X, classes, bounds = data(kind)
    y = np.minimum(classes, number - 1)
    model = PrivateLinearDiscriminantAnalysis(classes=range(number), **generous(relation, bounds))
    reference = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, y)
    model.fit(X, y)
    scale = np.ones(4) if kind == "norm" else FACTORS
    np.testing.assert_allclose(model.priors_, reference.priors_, atol=1e-3)
    np.testing.assert_allclose(model.means_ / scale, reference.means_ / scale, atol=0.01)
    both = [m.covariance_ / np.outer(scale, scale) for m in (model, reference)]
    np.testing.assert_allclose(both[0], both[1], atol=0.01)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(X), atol=0.02)


@either_relation
@each_bound
@pytest.mark.parametrize("number", [2, 3])
def test_logistic_regression(relation: str, kind: str, number: int) -> None:
    X, classes, bounds = data(kind, number=1500)
    y = np.minimum(classes, number - 1)
    # The residual is not clipped, and there are steps enough to converge.
    model = PrivateLogisticRegression(
        alpha=5.0,
        max_iter=60,
        residual_norm=1.5,
        classes=range(number),
        **generous(relation, bounds),
    )
    Z = scaled(X, kind)
    reference = LogisticRegression(C=0.2, max_iter=10_000, tol=1e-8).fit(Z, y)
    model.fit(X, y)
    assert model.coef_.shape == reference.coef_.shape
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=0.03)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@either_relation
@each_bound
def test_pca(relation: str, kind: str) -> None:
    X, _ = records(3000)
    if kind == "norm":
        X, bounds = X * [1.0, 0.3, 1.2, 0.5], KINDS["norm"]
    else:
        X = X * [1.0, 0.1, 5.0, 2.0] + 40.0
        bounds = {"bounds": (-50.0, 130.0)} | ({"data_norm": 60.0} if kind == "both" else {})
    model = PrivatePCA(3, **generous(relation, bounds)).fit(X)
    reference = PCA(3).fit(X)
    signs = np.sign((model.components_ * reference.components_).sum(axis=1))
    np.testing.assert_allclose(model.components_ * signs[:, None], reference.components_, atol=0.05)
    np.testing.assert_allclose(model.explained_variance_, reference.explained_variance_, rtol=0.02)
    np.testing.assert_allclose(
        model.explained_variance_ratio_, reference.explained_variance_ratio_, atol=0.01
    )
    np.testing.assert_allclose(model.mean_, reference.mean_, atol=0.05)


def test_all_components_give_the_records_back() -> None:
    X, _ = records()
    model = PrivatePCA(bounds=(-3, 3)).fit(X)
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-12)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(4), atol=1e-12)
    assert np.all(np.diff(model.explained_variance_) <= 0.0)
    names = PrivatePCA(2, bounds=(-3, 3)).fit(X).get_feature_names_out()
    assert list(names) == ["privatepca0", "privatepca1"]


def test_a_unit_changes_only_the_unit_of_a_weight() -> None:
    X, _ = records(2000)
    y = X @ [1.0, -1.0, 0.5, 0.0]
    units = np.array([1.0, 1e-3, 1e6, 1.0])
    models = [
        PrivateRidge(alpha=50.0, target_bounds=(-8, 8), epsilon=1e6, bounds=(-3 * unit, 3 * unit))
        for unit in (np.ones(4), units)
    ]
    first, second = models[0].fit(X, y).coef_, models[1].fit(X * units, y).coef_
    np.testing.assert_allclose(second * units, first, atol=1e-3)
    assert np.abs(first).max() < 0.95  # the penalty is felt


def test_targets_beyond_their_range_are_clamped() -> None:
    X, _ = records(500)
    y = X @ [0.1, -0.1, 0.05, 0.0]
    far, near = y.copy(), y.copy()
    far[:20], near[:20] = 1.7e308, 0.5
    bounds: dict[str, Any] = {"bounds": (-3, 3), "target_bounds": (-0.5, 0.5), "epsilon": 1e6}
    models = [PrivateRidge(**bounds).fit(X, targets) for targets in (far, near)]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=0.01)
