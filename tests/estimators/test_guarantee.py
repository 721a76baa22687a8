"""The guarantee of a fit: the releases that were made, their noise, and what enters them."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from scipy import stats

import matrixdp as mdp
from estimators.examples import ALL, FloatArray, bounded, records, targets
from matrixdp.estimators import PrivateLogisticRegression, PrivatePCA, PrivateStandardScaler
from matrixdp.estimators.exact_scores import exact_residuals, exact_scores
from matrixdp.estimators.linear_moments import release_moments
from matrixdp.estimators.public_features import PublicFeatures
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.privacy import composed_mu
from matrixdp.queries import CrossMoment, Gram, JointMoments, Sum

# The same estimator is fitted to neighbours on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::matrixdp.estimators.RepeatedSpendingWarning")
each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
each_relation = pytest.mark.parametrize("relation", ["replace", "add-remove"])
_BOX = (np.array([-3.0, -2.0, -0.1, 1.0]), np.array([3.0, 5.0, 0.3, 7.7]))
bounds_of_each_kind = pytest.mark.parametrize(
    "bounds",
    [{"bounds": _BOX}, {"data_norm": 2.0}, {"bounds": _BOX, "data_norm": 1.1}],
    ids=["box", "norm", "both"],
)


class Drawn(NamedTuple):
    """A mechanism, the private matrix that it was given, and what it released."""

    mechanism: Any
    exact: FloatArray
    release: mdp.Release


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """Collect every release that is made."""
    found: list[Drawn] = []
    original = GaussianMechanism.release

    def release(self: Any, matrix: Any, **options: Any) -> mdp.Release:
        made = original(self, matrix, **options)
        found.append(Drawn(self, np.array(matrix), made))
        return made

    monkeypatch.setattr(GaussianMechanism, "release", release)
    return found


class Asked(NamedTuple):
    """A query, and the private rows that it was evaluated on."""

    query: Any
    rows: FloatArray


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Collect the rows of every query."""
    found: list[Asked] = []

    def spy_on(query: Any) -> None:
        original = query.evaluate

        def evaluate(self: Any, data: Any) -> FloatArray:
            found.append(Asked(self, np.array(data)))
            return np.asarray(original(self, data))

        monkeypatch.setattr(query, "evaluate", evaluate)

    for query in (Gram, JointMoments, CrossMoment, Sum):
        spy_on(query)
    return found


@each_kind
@each_relation
def test_the_guarantee_is_that_of_all_releases(
    kind: Any, relation: str, drawn: list[Drawn]
) -> None:
    X, classes = records()
    model = bounded(kind, epsilon=2.0, delta=1e-6, neighbouring=relation)
    model.fit(X, targets(kind, X, classes))
    budget = mdp.Budget(2.0, 1e-6)
    spent = composed_mu(made.release.guarantee.mu for made in drawn)
    assert model.guarantee_.mu == spent
    # All of the budget, and no more than rounding to the next float allows.
    assert spent == pytest.approx(budget.mu, rel=1e-12)
    squares = sum(Fraction(made.release.guarantee.mu) ** 2 for made in drawn)
    assert squares <= budget.mu_squared
    assert model.guarantee_.neighbouring == relation
    assert {made.mechanism.sensitivity.neighbouring for made in drawn} == {relation}
    assert model.guarantee_.delta == 1e-6
    assert model.guarantee_.epsilon == pytest.approx(2.0, rel=1e-9)
    assert len(drawn) == (21 if kind is PrivateLogisticRegression else 1)
    assert model.leaks_ == ()


@each_kind
@pytest.mark.usefixtures("numbered_keys")
def test_noise_has_the_scale_that_is_claimed(kind: Any, drawn: list[Drawn]) -> None:
    """A chi-square test: false alarms 1e-6; a scale that is wrong by a quarter is noticed."""
    generator = np.random.default_rng(3)
    width = 500 if kind is PrivateStandardScaler else 45
    X = generator.uniform(-3.0, 3.0, size=(100, width))
    classes = generator.integers(3, size=100)
    bounded(kind).fit(X, targets(kind, X / 200.0, classes))
    units = []
    for made in drawn:
        noise = np.asarray(made.release.value) - made.exact
        scales = made.release.covariance.entry_scales(made.release.shape)
        # What a record changes, in units of the noise, is the mu that is charged.
        allowed = made.mechanism.sensitivity
        if isinstance(allowed, mdp.sensitivity.RowBox):
            radius = float(np.linalg.norm(allowed.bounds / scales))
        else:
            radius = allowed.bound / float(scales.max())
        assert radius <= made.release.guarantee.mu * (1 + 1e-12)
        symmetric = noise.shape[0] == noise.shape[1] and np.array_equal(noise, noise.T)
        upper = np.triu_indices(len(noise)) if symmetric else ...
        units.append((noise / scales)[upper].reshape(-1))
    sample = np.concatenate(units)

    def accepted(factor: float) -> bool:
        tail = stats.chi2(len(sample)).cdf((sample / factor) @ (sample / factor))
        return bool(5e-7 < tail < 1 - 5e-7)

    assert len(sample) > 900
    assert accepted(1.0)
    assert not accepted(0.75)
    assert not accepted(1.25)


EXTREME = (
    [0.0, -0.0, 0.0, 0.0],
    [3.0, 3.0, 3.0, 3.0],
    [-3.0, 3.0, -3.0, 3.0],
    [1.7e308, -1e300, 1e-300, 5e-324],
    [1.0, 1.0, 1.0, -1.0],
    [0.3, -10.0, 1e5, 0.1],
)


def is_member(change: list[Fraction], allowed: Any) -> bool:
    """Return whether an exact difference is in a ball or a box."""
    if isinstance(allowed, mdp.sensitivity.RowBox):
        sides = map(Fraction, allowed.bounds.tolist())
        return all(abs(entry) <= side for entry, side in zip(change, sides, strict=True))
    return sum(entry**2 for entry in change) <= Fraction(allowed.bound) ** 2


@each_kind
@each_relation
@bounds_of_each_kind
@pytest.mark.usefixtures("same_key")
def test_neighbours_differ_in_one_row_and_by_a_member_of_the_set(
    kind: Any, relation: str, bounds: dict[str, Any], asked: list[Asked]
) -> None:
    X, classes = records(30)
    steps = {"max_iter": 1} if kind is PrivateLogisticRegression else {}
    model = bounded(kind, neighbouring=relation, **bounds, **steps)

    def queries(rows: FloatArray, y: Any) -> list[Asked]:
        asked.clear()
        model.fit(rows, y)
        return list(asked)

    for index, record in enumerate(EXTREME):
        X[-1] = EXTREME[index - 1]
        y = targets(kind, np.clip(X, -3.0, 3.0), classes)
        # The last record is exchanged for one that stands elsewhere, or it is left out.
        replacing = relation == "replace"
        other = np.insert(X[:-1], 5 * index, record, axis=0) if replacing else X[:-1]
        changed = np.insert(y[:-1], 5 * index, index % 3) if replacing else y[:-1]
        for one, two in zip(queries(X, y), queries(other, changed), strict=True):
            assert one.query.sensitivity == two.query.sensitivity
            # Every row but one is there in both, to the last bit.
            kept = {row.tobytes() for row in one.rows[:-1]}
            assert len({row.tobytes() for row in two.rows} - kept) <= 1
            before, after = (ask.query.evaluate(ask.rows).ravel() for ask in (one, two))
            # One gradient is released, at the weights 0 of both.
            change = [Fraction(a) - Fraction(b) for a, b in zip(before, after, strict=True)]
            assert is_member(change, one.query.sensitivity)


@pytest.mark.usefixtures("same_key")
def test_every_gradient_depends_on_each_record_alone(asked: list[Asked]) -> None:
    """In another order the same noise gives the same weights, and rows only change places."""
    X, classes = records(101)
    order = np.random.default_rng(0).permutation(101)
    model = bounded(PrivateLogisticRegression, epsilon=50.0)
    first = model.fit(X, classes).coef_
    kept = list(asked)
    asked.clear()
    assert np.array_equal(model.fit(X[order], classes[order]).coef_, first)
    assert len(kept) == len(asked) == 21
    for one, two in zip(kept, asked, strict=True):
        assert np.array_equal(one.rows[order], two.rows)


@pytest.mark.parametrize("width", [60, 2300])
def test_residuals_do_not_depend_on_the_other_rows(width: int) -> None:
    generator = np.random.default_rng(0)
    whole = generator.integers(-(2**21), 2**21, size=(100, width)).astype(float)
    weights = generator.standard_normal((width, 7)) * 1e-7
    indicators = np.eye(7)[generator.integers(7, size=100)]
    together = exact_residuals(whole, weights, indicators)
    alone = [exact_residuals(whole[i : i + 1], weights, indicators[i : i + 1]) for i in range(100)]
    assert np.array_equal(together, np.concatenate(alone))
    # Weights are rounded to 2**-20 of the largest.
    np.testing.assert_allclose(exact_scores(whole, weights), whole @ weights, atol=1e-3)
    assert not exact_scores(whole, weights * 0.0).any()


def test_rows_are_within_the_bounds() -> None:
    X = np.array([[3.0, 4.0], [0.3, 0.4], [1e308, -1e308], [0.0, 0.0]])
    clipped = PublicFeatures.of(2, 1.0, None).rows(X)
    half = np.sqrt(0.5)
    expected = [[0.6, 0.8], [0.3, 0.4], [half, -half], [0.0, 0.0]]
    np.testing.assert_allclose(clipped, expected, atol=1e-5)
    assert np.all((clipped**2).sum(axis=1) <= 1.0)
    moved = PublicFeatures.of(2, None, ([0.0, -10.0], [4.0, 10.0])).rows(X)
    np.testing.assert_allclose(
        moved, [[0.5, 0.4], [-0.85, 0.04], [1.0, -1.0], [-1.0, 0.0]], atol=1e-5
    )
    both = PublicFeatures.of(2, 1.0, ([0.0, -10.0], [4.0, 10.0])).rows(X)
    np.testing.assert_allclose(both[[0, 1]], moved[[0, 1]], atol=1e-5)
    np.testing.assert_allclose(both[2:], [[half, -half], [-1.0, 0.0]], atol=1e-5)
    assert np.all((both**2).sum(axis=1) <= 1.0)


def test_a_norm_that_allows_the_whole_box_changes_nothing() -> None:
    box = ([0.0, -10.0], [4.0, 10.0])
    alone = PublicFeatures.of(2, None, box).bounds
    assert PublicFeatures.of(2, 1e50, box).bounds == alone
    assert PublicFeatures.of(2, 2.0**0.5 + 1e-9, box).bounds == alone
    assert PublicFeatures.of(2, 1.41, box).bounds != alone


@pytest.mark.usefixtures("same_key")
def test_records_beyond_the_bounds_are_clipped(drawn: list[Drawn]) -> None:
    X, _ = records(50)
    far = X.copy()
    far[0] *= 1e12
    at_the_bound = X.copy()
    at_the_bound[0] *= 2.0 / np.linalg.norm(X[0])
    for rows in (far, at_the_bound):
        PrivatePCA(data_norm=2.0).fit(rows)
    np.testing.assert_allclose(drawn[0].exact, drawn[1].exact, atol=1e-4)


def test_the_number_of_records_is_not_used_where_it_is_private(
    numbered_keys: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fitted model is a function of the releases: others of the same value, same model."""
    X, classes = records(60)
    stored: list[FloatArray] = []
    original = GaussianMechanism.release

    def release(self: Any, matrix: Any, **options: Any) -> mdp.Release:
        made = original(self, matrix, **options)
        if not stored:
            stored.append(np.array(made.value))
        object.__setattr__(made, "value", stored[0].copy())
        return made

    monkeypatch.setattr(GaussianMechanism, "release", release)
    for kind in ALL[:-1]:  # the last one has releases of two shapes
        stored.clear()
        numbered_keys()
        fitted = [
            bounded(kind, neighbouring="add-remove").fit(X[:n], targets(kind, X, classes)[:n])
            for n in (60, 41)
        ]
        for name, value in vars(fitted[0]).items():
            if name.endswith("_") and isinstance(value, np.ndarray | float):
                assert np.array_equal(value, getattr(fitted[1], name)), (kind, name)


@pytest.mark.parametrize("count", [100, None])
def test_a_public_count_is_used_without_noise(count: int | None) -> None:
    X, _ = records(100)
    features = PublicFeatures.of(4, 5.0, None)
    relation: Any = "replace" if count else "add-remove"
    moments = release_moments(
        features,
        features.rows(X),
        np.ones((100, 1)),
        neighbouring=relation,
        budget=mdp.Budget(1.0, 1e-5),
        count=count,
    )
    exact = moments.gram[-1, -1] == 100 * features.constant**2
    assert exact == (count is not None)
