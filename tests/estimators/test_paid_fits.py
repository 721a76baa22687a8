"""Fits that a filter or an account of a ledger pays for: once, whole, and before anything else."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from estimators.examples import ALL, bounded, records, targets
from matrixdp import Budget, BudgetExceededError, InvalidParameterError, PrivacyFilter
from matrixdp.estimators import PrivateLogisticRegression, PrivatePCA, PrivateRidgeClassifier
from matrixdp.ledger import Ledger
from matrixdp.mechanisms.gaussian import GaussianMechanism

each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)


def new_filter(epsilon: float = 4.0) -> PrivacyFilter:
    return PrivacyFilter(Budget(epsilon, 1e-5), neighbouring="replace")


@each_kind
def test_a_refused_fit_leaves_the_last_one(kind: Any) -> None:
    X, classes = records(80)
    y = targets(kind, X, classes)
    model, paying = bounded(kind), new_filter(1.3)
    model.fit(X, y, privacy_filter=paying)
    fitted = dict(vars(model))
    spent = paying.spent
    with pytest.raises(BudgetExceededError, match="does not fit"):
        model.fit(X[:, :3], y, privacy_filter=paying)
    assert vars(model) == fitted
    assert paying.spent == spent == model.guarantee_.mu


@each_kind
def test_bad_input_costs_nothing(kind: Any) -> None:
    X, classes = records(80)
    y, paying = targets(kind, X, classes), new_filter()
    bad = X.copy()
    bad[3, 1] = np.nan
    for matrix, model in (
        (bad, bounded(kind)),
        (X[:0], bounded(kind)),
        (X, bounded(kind, epsilon=-1.0)),
        (X, bounded(kind, bounds=(3.0, -3.0))),
    ):
        with pytest.raises((InvalidParameterError, ValueError)):
            model.fit(matrix, y[: len(matrix)], privacy_filter=paying)
    assert paying.spent == 0.0


@each_kind
def test_what_leaks_cannot_be_paid_for(kind: Any) -> None:
    X, classes = records(80)
    paying = new_filter()
    leaking = bounded(kind)
    leaking.bounds = None
    with pytest.warns(match="leaks"), pytest.raises(InvalidParameterError, match="cannot be paid"):
        leaking.fit(X, targets(kind, X, classes), privacy_filter=paying)
    assert paying.spent == 0.0


def test_gradients_are_paid_for_before_the_first_release(monkeypatch: pytest.MonkeyPatch) -> None:
    X, classes = records(80)
    paying, seen = new_filter(), list[float]()
    release = GaussianMechanism.release

    def watched(self: Any, matrix: Any, **options: Any) -> Any:
        seen.append(paying.spent)
        assert options.get("privacy_filter") is None
        return release(self, matrix, **options)

    monkeypatch.setattr(GaussianMechanism, "release", watched)
    model = bounded(PrivateLogisticRegression, max_iter=4)
    model.fit(X, classes, privacy_filter=paying)
    assert seen == [model.guarantee_.mu] * 5


def test_a_clone_has_no_budget_and_a_pipeline_passes_it_on() -> None:
    X, classes = records(80)
    first, second = new_filter(), new_filter()
    steps = make_pipeline(
        bounded(PrivatePCA, n_components=2), bounded(PrivateRidgeClassifier, bounds=(-9, 9))
    )
    steps.fit(
        X,
        classes,
        privatepca__privacy_filter=first,
        privateridgeclassifier__privacy_filter=second,
    )
    assert first.spent == steps[0].guarantee_.mu
    assert second.spent == steps[1].guarantee_.mu
    copy = clone(steps)
    assert not any(isinstance(value, PrivacyFilter) for value in vars(copy[0]).values())
    with pytest.warns(match="fit number"):
        # Neither the filter nor what it has paid for goes with a clone.
        copy.fit(X, classes).fit(X, classes)
    assert first.spent == steps[0].guarantee_.mu


def test_paid_fits_are_not_warned_of_and_a_search_pays_for_each() -> None:
    X, classes = records(120)
    paying = new_filter(10.0)
    search = GridSearchCV(
        bounded(PrivateRidgeClassifier), {"alpha": [0.1, 10.0]}, cv=2, error_score="raise"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, classes, privacy_filter=paying)
    one = search.best_estimator_.guarantee_.mu
    # Two values in two folds each, and the best one on all records.
    assert paying.spent == pytest.approx(one * 5**0.5, rel=1e-12)


@each_kind
def test_a_ledger_says_who_paid(kind: Any, tmp_path: Path) -> None:
    X, classes = records(80)
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        ledger.open_account("clinic", Budget(4.0, 1e-5), neighbouring="replace")
        account = ledger.open_account("clinic/ann", Budget(2.0, 1e-5), neighbouring="replace")
        model = bounded(kind).fit(X, targets(kind, X, classes), privacy_filter=account)
        (entry,) = [entry for entry in ledger.history() if entry.kind == "spend"]
        assert entry.account == "clinic/ann"
        assert entry.facts["mu"] == model.guarantee_.mu
        assert [each.spent for each in ledger.accounts()] == [account.balance.spent] * 2
