"""Bad input is refused by name before anything is drawn, and no message shows a private value."""

import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from scipy import sparse

from estimators.examples import ALL, CLASSIFIERS, TRANSFORMERS, bounded, records, targets
from matrixdp.errors import InvalidParameterError, MatrixDPError, ShapeError
from matrixdp.estimators import (
    PrivateLinearDiscriminantAnalysis,
    PrivatePCA,
    PrivateRidge,
    PrivateStandardScaler,
)
from matrixdp.noise import ReleaseKey

pd = pytest.importorskip("pandas", reason="frames are tested with pandas")

CANARY = 918273645
COUNT = 137  # of records, which no message may show: it is private under adding and removing
each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
each_classifier = pytest.mark.parametrize("kind", CLASSIFIERS, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """Fail if a key is made."""
    drawn: list[None] = []
    original = ReleaseKey.generate

    def generate() -> ReleaseKey:
        drawn.append(None)
        return original()

    monkeypatch.setattr(ReleaseKey, "generate", generate)
    yield drawn
    assert drawn == []


def message_of(model: Any, X: Any, y: Any) -> str:
    """Return what an error says, and check that it shows neither a value nor the count."""
    with pytest.raises(MatrixDPError) as caught:
        model.fit(X, y)
    # All that a user would see, errors that led to this one included.
    shown = "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    for secret in (str(CANARY), str(COUNT), "sample"):
        assert secret not in shown
    return shown


def with_canary(entry: Any) -> Any:
    X = records(COUNT)[0].astype(object)
    X[3, 1] = entry
    return X


BAD_TABLES = {
    "text": (with_canary(f"x{CANARY}"), "X"),
    "dictionary": (with_canary({"a": CANARY}), "number"),
    "NaN": (with_canary(np.nan), "NaN"),
    "infinity": (with_canary(np.inf), "infinity"),
    "one axis": (np.full(COUNT, float(CANARY)), "2D"),
    "three axes": (np.full((COUNT, 2, 2), float(CANARY)), "X"),
    "ragged": ([[1.0, CANARY], [2.0]] + [[1.0, 2.0]] * (COUNT - 2), "X"),
    "complex": (np.full((COUNT, 4), CANARY + 1j), "Complex"),
    "sparse": (sparse.csr_array(np.full((COUNT, 4), float(CANARY))), "parse"),
    "no features": (np.empty((COUNT, 0)), "0 feature"),
    "no records": (np.empty((0, 4)), "cannot be read"),
    "frame of text": (pd.DataFrame({"a": [f"x{CANARY}"] * COUNT}), "X"),
    "names of two types": (pd.DataFrame(np.zeros((COUNT, 2)), columns=["a", 1]), "names"),
    "a record less": (np.full((COUNT + 1, 4), float(CANARY)), "different numbers of records"),
    "beyond floats": (with_canary(CANARY * 10**400), "X"),
    "nothing": (None, "X"),
    "masked": (np.ma.masked_equal(np.full((COUNT, 4), CANARY), CANARY), "masked"),
    "missing cells": (pd.DataFrame({"a": [pd.NA, CANARY] * COUNT}, dtype="Int64")[:COUNT], "NaN"),
    "missing objects": (pd.DataFrame({"a": [pd.NA, CANARY] * COUNT})[:COUNT], "cannot be read"),
    "integers beyond floats": (np.full((COUNT, 4), 2**53 + 2), "beyond 2**53"),
}


@each_kind
@pytest.mark.parametrize("case", BAD_TABLES)
def test_records(kind: Any, case: str) -> None:
    X, named = BAD_TABLES[case]
    if kind in TRANSFORMERS and case == "a record less":
        return
    _, classes = records(COUNT)
    relation = {"neighbouring": "add-remove"}
    assert named in message_of(bounded(kind, **relation), X, classes.astype(float))


BAD_LABELS = {
    "unknown number": (np.full(COUNT, CANARY), "not among classes"),
    "unknown text": (np.full(COUNT, f"x{CANARY}"), "not among classes"),
    "fractions": (np.full(COUNT, CANARY + 0.5), "Unknown label type"),
    "mixed": (np.array([f"x{CANARY}", CANARY] * COUNT, dtype=object)[:COUNT], "labels of one"),
    "objects": (np.array([{"a": CANARY}] * COUNT, dtype=object), "labels of one"),
    "NaN": (np.full(COUNT, np.nan), "NaN"),
    "two columns": (np.full((COUNT, 2), CANARY), "1d array"),
    "missing": (None, "y"),
}


@each_classifier
@pytest.mark.parametrize("case", BAD_LABELS)
def test_labels(kind: Any, case: str) -> None:
    X, _ = records(COUNT)
    y, named = BAD_LABELS[case]
    assert named in message_of(bounded(kind, neighbouring="add-remove"), X, y)


@pytest.mark.parametrize(
    "y",
    [
        np.full(COUNT, f"x{CANARY}"),
        np.array([{"a": CANARY}] * COUNT, dtype=object),
        np.array([CANARY * 10**400] * COUNT, dtype=object),
        np.full(COUNT, CANARY, dtype="M8[s]"),
        np.full(COUNT, np.inf),
        np.full((COUNT, 3), float(CANARY)),
        np.full(COUNT, CANARY + 1j),
        None,
    ],
)
def test_targets(y: Any) -> None:
    assert "y" in message_of(bounded(PrivateRidge, neighbouring="add-remove"), records(COUNT)[0], y)


BAD_PARAMETERS = [
    ({"epsilon": -1.0}, "epsilon=-1.0"),
    ({"epsilon": None}, "epsilon=None"),
    ({"epsilon": float("nan")}, "epsilon=nan"),
    ({"delta": 0.0}, "delta=0.0"),
    ({"delta": 1.5}, "delta=1.5"),
    ({"neighbouring": "swap"}, "neighbouring='swap'"),
    ({"data_norm": -2.0}, "norm=-2.0"),
    ({"data_norm": 0.0}, "norm=0.0"),
    ({"data_norm": "large"}, "norm='large'"),
    ({"bounds": (3.0, -3.0)}, "lower"),
    ({"bounds": (0.0, 0.0)}, "lower"),
    ({"bounds": 5.0}, "bounds must be a pair"),
    ({"bounds": (0.0, 1.0, 2.0)}, "bounds must be a pair"),
    ({"bounds": ([0.0, 0.0], 1.0)}, "bounds: lower has shape (2,)"),
    ({"bounds": (0.0, [1.0] * 5)}, "bounds: upper has shape (5,)"),
    ({"bounds": (0.0, float("inf"))}, "finite"),
    ({"bounds": (1.0, 2.0), "data_norm": -1.0}, "norm=-1.0"),
]


@each_kind
@pytest.mark.parametrize(("wrong", "named"), BAD_PARAMETERS)
def test_parameters(kind: Any, wrong: dict[str, Any], named: str) -> None:
    X, classes = records(COUNT)
    assert named in message_of(bounded(kind, **wrong), X, targets(kind, X, classes))


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        (PrivatePCA, {"n_components": 5}, "n_components=5"),
        (PrivatePCA, {"n_components": 0}, "n_components=0"),
        (PrivatePCA, {"n_components": 0.9}, "n_components=0.9"),
        (PrivateRidge, {"alpha": -1.0}, "alpha=-1.0"),
        (PrivateRidge, {"alpha": float("inf")}, "alpha=inf"),
        (CLASSIFIERS[0], {"alpha": 1e308}, "alpha=1e+308"),
        (CLASSIFIERS[2], {"alpha": 1e308}, "alpha=1e+308"),
        (PrivateRidge, {"target_bounds": (1.0, 1.0)}, "target_bounds=(1.0, 1.0)"),
        (PrivateRidge, {"target_bounds": (0.0, 5e-324)}, "target_bounds=(0.0, 5e-324)"),
        (PrivateRidge, {"target_bounds": (1.0,)}, "target_bounds must be a pair"),
        (PrivateRidge, {"target_bounds": ([0.0, 0.0], 1.0)}, "target_bounds: lower"),
        (CLASSIFIERS[2], {"max_iter": 0}, "max_iter=0"),
        (CLASSIFIERS[2], {"residual_norm": 0.0}, "residual_norm=0.0"),
        (CLASSIFIERS[2], {"classes": [0, 1, 1]}, "classes names a class twice"),
        (CLASSIFIERS[1], {"classes": [0]}, "at most one class"),
        (CLASSIFIERS[1], {"classes": []}, "classes"),
        (CLASSIFIERS[0], {"classes": "ab"}, "classes"),
        (CLASSIFIERS[0], {"classes": [0, "b"]}, "not among classes"),
        (CLASSIFIERS[0], {"classes": [[0, 1], [1, 2]]}, "classes must be a list"),
    ],
)
def test_parameters_of_one_estimator(kind: Any, wrong: dict[str, Any], named: str) -> None:
    X, classes = records(COUNT)
    assert named in message_of(bounded(kind, **wrong), X, targets(kind, X, classes))


@pytest.mark.filterwarnings("ignore::matrixdp.estimators.PrivacyLeakWarning")
def test_bounds_that_the_data_do_not_have() -> None:
    X, _ = records(COUNT)
    assert "one class" in message_of(PrivateLinearDiscriminantAnalysis(), X, np.full(COUNT, CANARY))
    for size in (CANARY * 1e150, CANARY * 1e-150, 1.7e308):
        X = np.zeros((COUNT, 4))
        X[0, 0] = size
        assert "too long or too short" in message_of(PrivatePCA(), X, None)


@each_kind
@pytest.mark.filterwarnings("ignore::matrixdp.estimators.PrivacyLeakWarning")
@pytest.mark.parametrize("size", [9.18273645e99, 1.18273645e-100])
def test_bounds_of_the_data_at_the_ends_of_what_bounds_can_be(kind: Any, size: float) -> None:
    """Numbers that follow from a norm must not show it either, where they are out of range."""
    shown = message_of(kind(), [[size], [size / 2.0]], np.array([0.0, 1.0]))
    assert "too long or too short" in shown
    assert "e+" not in shown
    assert "e-" not in shown


def test_new_records(nothing_is_drawn: list[None]) -> None:
    X, classes = records(COUNT)
    pca, lda = bounded(PrivatePCA, n_components=2).fit(X), bounded(CLASSIFIERS[1]).fit(X, classes)
    scaler = bounded(PrivateStandardScaler).fit(X)
    nothing_is_drawn.clear()
    for call, rows, named in (
        (pca.transform, np.full((3, 5), float(CANARY)), "X has 5 features"),
        (pca.transform, np.full(4, float(CANARY)), "Reshape your data"),
        (pca.inverse_transform, np.full((3, 5), float(CANARY)), "pass 2"),
        (pca.inverse_transform, np.full(COUNT, float(CANARY)), "Reshape your data"),
        (pca.inverse_transform, np.empty((COUNT, 0)), "0 feature"),
        (scaler.inverse_transform, np.full((COUNT, 5), float(CANARY)), "pass 4"),
        (scaler.inverse_transform, np.full((COUNT, 1), float(CANARY)), "pass 4"),
        (lda.predict, [[f"x{CANARY}"] * 4], "cannot be read"),
        (lda.predict_proba, np.full((3, 4), np.nan), "NaN"),
    ):
        with pytest.raises((InvalidParameterError, ShapeError), match=named) as caught:
            call(rows)
        assert str(CANARY) not in str(caught.value)
        assert str(COUNT) not in str(caught.value)
