"""Pipelines within one budget: what they refuse, what they spend, and what their steps see."""

import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import matrixdp as mdp
from estimators.examples import CLASSIFIERS, TRANSFORMERS, FloatArray, records
from matrixdp.estimators import (
    PrivateLogisticRegression,
    PrivatePCA,
    PrivatePipeline,
    PrivateRidgeClassifier,
    PrivateStandardScaler,
    RepeatedSpendingWarning,
)
from matrixdp.ledger import Ledger
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.privacy import composed_mu
from matrixdp.queries import CrossMoment, Gram, JointMoments

each_transformer = pytest.mark.parametrize("first", TRANSFORMERS, ids=lambda kind: kind.__name__)
each_classifier = pytest.mark.parametrize("last", CLASSIFIERS, ids=lambda kind: kind.__name__)
each_relation = pytest.mark.parametrize("relation", ["replace", "add-remove"])


def pipeline(
    first: Any = PrivateStandardScaler, last: Any = PrivateRidgeClassifier, **parameters: Any
) -> PrivatePipeline:
    few = {"max_iter": 1} if last is PrivateLogisticRegression else {}
    model = last(data_norm=3.0, classes=[0, 1, 2], **few)
    return PrivatePipeline([("first", first(bounds=(-3, 3))), ("last", model)], **parameters)


class Made(NamedTuple):
    """A release, and the private matrix behind it."""

    exact: FloatArray
    release: mdp.Release
    allowed: Any


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """Collect every release that is drawn."""
    found: list[Made] = []
    original = GaussianMechanism.release

    def release(self: Any, matrix: Any, **options: Any) -> mdp.Release:
        drawn = original(self, matrix, **options)
        found.append(Made(np.array(matrix), drawn, self.sensitivity))
        return drawn

    monkeypatch.setattr(GaussianMechanism, "release", release)
    return found


@each_transformer
@each_classifier
@each_relation
def test_all_releases_together_cost_the_budget(
    first: Any, last: Any, relation: str, made: list[Made]
) -> None:
    X, classes = records(120)
    model = pipeline(first, last, epsilon=2.0, delta=1e-6, neighbouring=relation, shares=[1, 3])
    model.fit(X, classes)
    mus = [each.release.guarantee.mu for each in made]
    assert len(mus) == (3 if last is PrivateLogisticRegression else 2)
    assert sum(Fraction(mu) ** 2 for mu in mus) <= mdp.Budget(2.0, 1e-6).mu_squared
    assert model.guarantee_.mu == pytest.approx(mdp.Budget(2.0, 1e-6).mu, rel=1e-12)
    assert model.guarantee_.mu >= composed_mu(mus) * (1 - 1e-15)
    assert mus[0] ** 2 == pytest.approx(model.guarantee_.mu**2 / 4, rel=1e-12)
    assert str(model.guarantee_).startswith("(2, 1e-06)")
    assert {each.allowed.neighbouring for each in made} == {relation}
    assert model.predict(X).shape == (120,)


EXTREME = ([3.0, -3.0, 3.0, 3.0], [1.7e308, -1e300, 1e-300, 5e-324], [0.3, -10.0, 1e5, 0.1])


@each_transformer
@each_classifier
@each_relation
@pytest.mark.usefixtures("same_key")
def test_what_the_last_step_sees_of_neighbours_differs_in_one_row(
    first: Any, last: Any, relation: str, made: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the first step has released the same, exact rows and answers are those of neighbours."""
    X, classes = records(30)
    seen: list[FloatArray] = []
    model = pipeline(first, last, neighbouring=relation)

    def spy_on(query: Any) -> None:
        original = query.evaluate

        def evaluate(self: Any, data: Any) -> FloatArray:
            seen.append(np.array(data))
            return np.asarray(original(self, data))

        monkeypatch.setattr(query, "evaluate", evaluate)

    for query in (Gram, CrossMoment, JointMoments):
        spy_on(query)
    original, stored = GaussianMechanism.release, list[FloatArray]()

    def release(self: Any, matrix: Any, **options: Any) -> mdp.Release:
        drawn = original(self, matrix, **options)
        if not stored:
            stored.append(np.array(drawn.value))
        if drawn.shape == stored[0].shape:
            object.__setattr__(drawn, "value", stored[0].copy())
        return drawn

    # The wrapper of `made` is around the original, and this one around it.
    monkeypatch.setattr(GaussianMechanism, "release", release)

    def run(rows: FloatArray, y: Any) -> tuple[FloatArray, list[Made]]:
        seen.clear()
        made.clear()
        model.fit(rows, y)
        return seen[-1], list(made)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedSpendingWarning)
        for index, record in enumerate(EXTREME):
            X[-1] = EXTREME[index - 1]
            replacing = relation == "replace"
            other = np.insert(X[:-1], 5 * index, record, axis=0) if replacing else X[:-1]
            changed = np.insert(classes[:-1], 5 * index, index) if replacing else classes[:-1]
            before, exact = run(X, classes)
            after, other_exact = run(other, changed)
            kept = {row.tobytes() for row in before[:-1]}
            assert len({row.tobytes() for row in after} - kept) <= 1
            assert np.isfinite(before).all()
            # Every release of the last step: its first gradient is at weights 0.
            for one, two in zip(exact[1:], other_exact[1:], strict=True):
                pairs = zip(one.exact.ravel(), two.exact.ravel(), strict=True)
                change = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
                assert change <= Fraction(one.allowed.bound) ** 2


@each_transformer
def test_rows_that_are_passed_on_are_those_of_transform(first: Any) -> None:
    X, _ = records(500)
    model = first(bounds=(-3, 3)).fit(X)
    rows = model.rows_passed_on(X)
    np.testing.assert_allclose(rows, model.transform(X), atol=1e-4)
    assert rows.shape[1] == model.width_passed_on(4)
    # In another order and number the same rows, to the last bit.
    order = np.random.default_rng(0).permutation(500)[:333]
    assert np.array_equal(model.rows_passed_on(X[order]), rows[order])


@each_transformer
def test_a_record_far_away_does_not_stop_a_fit_that_has_begun(first: Any) -> None:
    X, classes = records(500)
    X[3] = [1.7e308, -1.7e308, 1.7e308, 0.0]
    assert np.isfinite(pipeline(first, epsilon=1e3).fit(X, classes)["last"].coef_).all()


def _fails(X: FloatArray) -> FloatArray:
    raise ValueError(f"{X}")


def _random(X: FloatArray) -> FloatArray:
    return np.asarray(X + np.random.default_rng().normal(size=X.shape))


class _Numbered:
    """It adds to each record how many there were before."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, X: FloatArray) -> FloatArray:
        self.number += 1
        return np.asarray(X + self.number)


class _Distance:
    """It gives the distance of each record from the one before."""

    def __init__(self) -> None:
        self.last: FloatArray | float = 0.0

    def __call__(self, X: FloatArray) -> FloatArray:
        distance, self.last = X - self.last, X
        return np.asarray(distance)


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (StandardScaler(), "step 'front' is a StandardScaler, which would learn from all records"),
        (PCA(2), "step 'front' is a PCA"),
        (FrozenEstimator(StandardScaler()), "step 'front' is frozen.*public_steps=..front"),
        (FunctionTransformer(lambda X: X[:0]), "step 'front' must give a row"),
        (FunctionTransformer(_fails), "step 'front' raises ValueError"),
        (FunctionTransformer(_Numbered()), "'front' gives one record two different rows"),
        (FunctionTransformer(_Distance()), "'front' gives one record two different rows"),
        (FunctionTransformer(_random), "'front' gives one record two different rows"),
        (PrivateStandardScaler(bounds=(-3, 3), epsilon=3.0), "step 'front' has epsilon=3.0"),
        (PrivatePCA(neighbouring="add-remove"), "step 'front' has neighbouring='add-remove'"),
        (PrivateStandardScaler(), "leaks the largest row norm of X"),
    ],
)
@pytest.mark.filterwarnings("ignore::matrixdp.estimators.PrivacyLeakWarning")
def test_steps_that_are_refused(step: Any, named: str, made: list[Made]) -> None:
    X, classes = records(40)
    model = PrivatePipeline([("front", step), *pipeline().steps])
    paying = mdp.PrivacyFilter(mdp.Budget(4.0, 1e-5), neighbouring="replace")
    with pytest.raises(mdp.InvalidParameterError, match=named) as refused:
        model.fit(X, classes, privacy_filter=paying)
    assert "0.9" not in str(refused.value)
    assert refused.value.__context__ is None
    assert made == []
    assert paying.spent == 0.0


def test_orders_and_shares_that_are_refused() -> None:
    X, classes = records(40)
    scaler, model = PrivateStandardScaler(bounds=(-3, 3)), LogisticRegression()
    front = FunctionTransformer()
    for steps, named in (
        ([("scale", scaler), ("front", front), *pipeline().steps[1:]], "'front' comes after"),
        ([("scale", scaler), ("model", model)], "'model' is a LogisticRegression"),
        ([("front", front)], "no private one"),
    ):
        with pytest.raises(mdp.InvalidParameterError, match=named):
            PrivatePipeline(steps).fit(X, classes)
    with pytest.raises(mdp.InvalidParameterError, match="shares has 3 weights"):
        pipeline(shares=[1, 2, 3]).fit(X, classes)


def test_bad_targets_of_the_last_step_cost_nothing(made: list[Made]) -> None:
    X, classes = records(40)
    paying = mdp.PrivacyFilter(mdp.Budget(4.0, 1e-5), neighbouring="replace")
    for y in (classes + 1, classes[:-1], None, np.full(40, np.nan)):
        with pytest.raises(mdp.InvalidParameterError):
            pipeline().fit(X, y, privacy_filter=paying)
    with pytest.raises(mdp.InvalidParameterError, match="alpha"):
        pipeline().set_params(last__alpha=-1.0).fit(X, classes, privacy_filter=paying)
    assert paying.spent == 0.0
    assert made == []


def test_a_step_in_front_gets_one_record_at_a_time() -> None:
    X, classes = records(60)
    lengths: list[int] = []

    def centred(rows: FloatArray) -> FloatArray:
        lengths.append(len(rows))
        return np.asarray(rows - rows.mean(axis=0))

    model = pipeline(epsilon=1e6)
    model.steps.insert(0, ("front", FunctionTransformer(centred)))
    model.fit(X, classes)
    assert set(lengths) == {1}
    # It was fitted to differences of records from themselves.
    assert np.abs(model[1].mean_).max() < 0.01


class _Centred(FunctionTransformer):
    """It says that it needs no fit, and learns in one all the same."""

    def fit(self, X: Any, y: Any = None) -> "_Centred":  # noqa: ARG002
        self.mean_ = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


def test_what_a_step_in_front_has_learned_before_is_not_used(made: list[Made]) -> None:
    X, classes = records(30)
    last = PrivateRidgeClassifier(data_norm=3.0, classes=[0, 1, 2])
    model = PrivatePipeline([("centred", _Centred().fit(X)), ("last", last)])
    with pytest.raises(mdp.InvalidParameterError, match="'centred' raises AttributeError"):
        model.fit(X, classes)
    assert not made


def test_what_was_fitted_to_public_data_is_used_and_kept() -> None:
    X, classes = records(300)
    public = StandardScaler().fit(records(200, seed=5)[0])
    model = PrivatePipeline(
        [("public", FrozenEstimator(public)), ("last", pipeline()[1])],
        epsilon=50.0,
        public_steps=["public"],
    )
    before = public.mean_.copy()
    assert clone(model).fit(X, classes).score(X, classes) > 0.8
    assert np.array_equal(public.mean_, before)


@pytest.mark.parametrize(
    ("step", "public", "named"),
    [
        (FrozenEstimator(PrivateStandardScaler(bounds=(-3, 3))), (), "'front' is frozen"),
        (FunctionTransformer(), ["front"], "public_steps names 'front', which is no frozen step"),
        (FunctionTransformer(), ["back"], "public_steps names 'back'"),
        (FrozenEstimator(StandardScaler()), ["front"], "step 'front' raises NotFittedError"),
        (FrozenEstimator(StandardScaler()), "front", "public_steps"),
    ],
)
def test_public_steps_are_declared_by_name(step: Any, public: Any, named: str) -> None:
    X, classes = records(40)
    steps = [("front", step), ("last", pipeline()[1])]
    with pytest.raises(mdp.InvalidParameterError, match=named):
        PrivatePipeline(steps, public_steps=public).fit(X, classes)


def test_the_index_of_a_frame_is_not_passed_on() -> None:
    pd = pytest.importorskip("pandas")
    X, classes = records(60)
    seen: list[int] = []

    def dated(frame: Any) -> Any:
        seen.extend(frame.index)
        return frame.assign(number=frame.index)

    model = pipeline(epsilon=1e6)
    model.steps.insert(0, ("front", FunctionTransformer(dated)))
    model.set_params(first__bounds=(-3, 100), last__bounds=None)
    model.fit(pd.DataFrame(X, columns=list("abcd"), index=range(7, 67)), classes)
    assert set(seen) == {0}


def test_columns_are_found_by_name_also_where_a_step_drops_the_names() -> None:
    pd = pytest.importorskip("pandas")
    X, classes = records(300)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = pipeline(epsilon=50.0)
    model.steps.insert(0, ("front", FunctionTransformer(np.asarray)))
    model.fit(frame, classes)
    exchanged = frame[["d", "b", "c", "a"]].assign(e=1.0)
    for method in ("predict", "decision_function"):
        expected = getattr(model, method)(X)
        assert np.array_equal(getattr(model, method)(frame), expected)
        assert np.array_equal(getattr(model, method)(exchanged), expected)
    assert model.score(exchanged, classes) == model.score(X, classes)
    assert not hasattr(model, "transform")
    with pytest.raises(mdp.InvalidParameterError, match="no column 'a'"):
        model.predict(frame.drop(columns="a"))


def test_a_filter_pays_once_and_refuses_whole(made: list[Made]) -> None:
    X, classes = records(80)
    paying = mdp.PrivacyFilter(mdp.Budget(1.3, 1e-5), neighbouring="replace")
    model = pipeline()
    model.fit(X, classes, privacy_filter=paying)
    assert paying.spent == model.guarantee_.mu
    fitted, drawn = dict(vars(model)), len(made)
    with pytest.raises(mdp.BudgetExceededError):
        model.fit(X, classes, privacy_filter=paying)
    assert vars(model) == fitted
    assert len(made) == drawn == 2


def test_a_ledger_has_one_entry_for_all_steps(tmp_path: Path) -> None:
    X, classes = records(80)
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        account = ledger.open_account("clinic", mdp.Budget(4.0, 1e-5), neighbouring="replace")
        model = pipeline().fit(X, classes, privacy_filter=account)
        (entry,) = [entry for entry in ledger.history() if entry.kind == "spend"]
        assert entry.facts["mu"] == model.guarantee_.mu


def test_fits_are_counted_for_the_pipeline_and_not_for_its_steps() -> None:
    X, classes = records(80)
    model = pipeline()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, classes)
    with pytest.warns(RepeatedSpendingWarning, match="fit number 2") as caught:
        clone(model).fit(X, classes)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    search = GridSearchCV(model, {"last__alpha": [0.1, 10.0]}, cv=2, error_score="raise")
    with pytest.warns(RepeatedSpendingWarning):
        search.fit(X, classes)
    assert search.best_estimator_.guarantee_.mu == model.guarantee_.mu


def test_tools_of_scikit_learn() -> None:
    X, classes = records(300)
    model = pipeline(epsilon=20.0).fit(X, classes)
    assert isinstance(model[:1], Pipeline)
    np.testing.assert_array_equal(model[:1].transform(X), model["first"].transform(X))
    assert model.get_params()["first__epsilon"] == 1.0
    # Parameters are as they were given, so that it can be fitted again.
    assert clone(model).set_params(epsilon=3.0).get_params()["last__epsilon"] == 1.0
    assert model.n_features_in_ == 4
    both = PrivatePipeline([("a", PrivateStandardScaler(bounds=(-3, 3))), ("b", "passthrough")])
    assert both.fit_transform(X).shape == (300, 4)
