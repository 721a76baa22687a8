"""A pipeline within one budget, whose steps learn from the records privately or not at all."""

import functools
from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.base import PrivateEstimator, PrivateTransformer
from matrixdp.estimators.counted_fits import CountedFits
from matrixdp.estimators.one_by_one import one_by_one
from matrixdp.parameters import all_names_of, in_order_of, members_of
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.filter import PrivacyFilter
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.privacy.payment import Cost, Payer, stated_mu

__all__ = ["PrivatePipeline"]

# Clipped to any bounds, so that made-up records give the largest numbers that there can be.
_FAR = 1e300


def _by_names(method: str) -> Any:
    """Return a method of scikit-learn's pipelines that finds the columns of the fit by name."""
    inherited = vars(Pipeline)[method]

    @functools.wraps(inherited.fn)
    def found(self: "PrivatePipeline", X: Any, *arguments: Any, **options: Any) -> Any:
        ordered = self._in_order_of_fit(X)
        return inherited.__get__(self, type(self))(ordered, *arguments, **options)

    return available_if(lambda pipeline: bool(inherited.__get__(pipeline, type(pipeline))))(found)


class PrivatePipeline(CountedFits, Pipeline):
    """Steps that are fitted one after another within one budget.

    Parameters
    ----------
    steps : list of (str, estimator)
        In front those that learn nothing here: stateless ones such as ``FunctionTransformer``, and
        fitted ones in a ``FrozenEstimator`` that ``public_steps`` names. After them private ones,
        without a budget or a relation of their own. Anything else is refused.
    epsilon, delta : float, optional
        What one fit spends.
    neighbouring : {"replace", "add-remove"}, optional
        What neighbouring data sets are.
    shares : sequence of float, optional
        Weights by which mu² is split among the private steps; by default all have the same.
    public_steps : sequence of str, optional
        Names of the frozen steps. It declares that they were fitted to public data: the guarantee
        says nothing about other data that they have learned from.

    Attributes
    ----------
    guarantee_ : Guarantee
        What all steps that were fitted here guarantee together.

    Notes
    -----
    *Guarantee:* the squares of the mu of all steps add up to at most that of the budget, also
    though a step depends on what earlier ones released (Dong, Roth and Su, Gaussian differential
    privacy, 2022, Corollary 3.3). In a fit, a step in front gets each record by itself and without
    its index, so that it cannot mix records, and a private step passes on rows that each depend on
    one record alone. A step that gives the first record another row after it has seen all others
    is refused: it keeps something between its calls. All checks of all steps come before the first
    payment.

    Columns with names are found by them, in every method that takes records.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from matrixdp.estimators import PrivatePCA, PrivatePipeline, PrivateRidgeClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivatePipeline(
    ...     [
    ...         ("pca", PrivatePCA(20, data_norm=50.0)),
    ...         ("classes", PrivateRidgeClassifier(data_norm=50.0, classes=range(10))),
    ...     ],
    ...     epsilon=3.0,
    ...     shares=[1, 9],
    ... )
    >>> print(model.fit(X, y).guarantee_)
    (3, 1e-05)-differential privacy under replacing one record (mu = 0.7192).
    >>> model.predict(X).shape
    (1797,)
    """

    # Parameters of scikit-learn's pipelines, which this one does not have.
    memory = None
    transform_input = None
    verbose = False

    # Before any step sees the records: one that drops names would let columns be exchanged.
    predict = _by_names("predict")
    predict_proba = _by_names("predict_proba")
    predict_log_proba = _by_names("predict_log_proba")
    decision_function = _by_names("decision_function")
    score = _by_names("score")
    transform = _by_names("transform")

    guarantee_: Guarantee

    def __init__(
        self,
        steps: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        shares: Sequence[float] | None = None,
        public_steps: Sequence[str] = (),
    ) -> None:
        self.steps = steps
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.shares = shares
        self.public_steps = public_steps

    def fit(self, X: Any, y: Any = None, *, privacy_filter: Payer | None = None) -> Self:
        """Fit all private steps, each to what the steps before it make of the records.

        Parameters
        ----------
        X : array_like, shape (records, features)
            Records in rows.
        y : array_like, shape (records,), optional
            What the last step needs.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for all steps, all at once, after all checks and before anything is drawn.

        Returns
        -------
        PrivatePipeline
            This pipeline, with fitted clones of its steps.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn; the message never shows a record.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn, and the last fit stays.
        """
        relation, budget = checked_neighbouring(self.neighbouring), Budget(self.epsilon, self.delta)
        in_front, private = self._divided()
        shares = self._split(budget, len(private))
        parts = [
            clone(step).set_params(epsilon=share.epsilon, delta=share.delta, neighbouring=relation)
            for (_, step), share in zip(private, shares, strict=True)
        ]
        records = X
        for name, step in in_front:
            # A clone has learned nothing, whatever the step was fitted to before.
            fresh = step if isinstance(step, FrozenEstimator) else clone(step)
            records = one_by_one(name, fresh, records)
        payers = [
            PrivacyFilter(Budget(part.epsilon, part.delta), neighbouring=relation) for part in parts
        ]
        spent = composed_mu(_costs(parts, records, y, relation))
        guarantee = Guarantee.of_budget(budget, mu=spent, neighbouring=relation)
        self._before_release(budget, privacy_filter, leaks=())
        if privacy_filter is not None:
            privacy_filter.spend(guarantee)
        for part, payer in zip(parts, payers, strict=True):
            part.fit(records, y, privacy_filter=payer)
            if part is not parts[-1]:
                records = part.rows_passed_on(records)
        fitted = dict(zip([name for name, _ in private], parts, strict=True))
        self._publish(fitted, guarantee, all_names_of(X))
        return self

    def fit_transform(self, X: Any, y: Any = None, *, privacy_filter: Payer | None = None) -> Any:
        """Fit all steps, and return the transformed records, which are private."""
        return self.fit(X, y, privacy_filter=privacy_filter).transform(X)

    def __getitem__(self, index: Any) -> Any:
        """Return a step, or for a slice a pipeline of scikit-learn's of some of the steps."""
        if isinstance(index, slice):
            return Pipeline(self.steps)[index]
        return super().__getitem__(index)

    def _divided(self) -> tuple[list[tuple[str, Any]], list[tuple[str, PrivateEstimator]]]:
        """Return the steps that learn nothing and the private ones, or raise for any other."""
        self._validate_steps()
        public = _checked_public(self.public_steps, dict(self.steps))
        in_front, private = list[tuple[str, Any]](), list[tuple[str, PrivateEstimator]]()
        for _, name, step in self._iter():
            if isinstance(step, PrivateEstimator):
                _check_no_budget(name, step)
                if private and not isinstance(private[-1][1], PrivateTransformer):
                    raise InvalidParameterError(f"step {private[-1][0]!r} must be the last one")
                private.append((name, step))
                continue
            if isinstance(step, FrozenEstimator) and name not in public:
                raise InvalidParameterError(
                    f"step {name!r} is frozen, and guarantee_ would say nothing about the records "
                    f"that it was fitted to: if these are public, pass public_steps=[{name!r}]; if "
                    "not, use a private step that is not frozen"
                )
            if not isinstance(step, FrozenEstimator) and get_tags(step).requires_fit:
                raise InvalidParameterError(
                    f"step {name!r} is a {type(step).__name__}, which would learn from all records "
                    "without privacy: use a private one, such as PrivateStandardScaler, or fit it "
                    f"to public data and pass FrozenEstimator(step) and public_steps=[{name!r}]"
                )
            if private:
                raise InvalidParameterError(
                    f"step {name!r} comes after a private one: move it to the front, where all "
                    "that it makes can be checked before anything is spent"
                )
            in_front.append((name, step))
        if not private:
            raise InvalidParameterError("steps has no private one: there is nothing to spend on")
        return in_front, private

    def _split(self, budget: Budget, parts: int) -> tuple[Budget, ...]:
        if self.shares is None:
            return budget.split(parts)
        shares = budget.split(self.shares)
        if len(shares) != parts:
            raise InvalidParameterError(
                f"shares has {len(shares)} weights: pass one for each of the {parts} private steps"
            )
        return shares

    def _publish(
        self,
        fitted: dict[str, PrivateEstimator],
        guarantee: Guarantee,
        names: list[Hashable] | None,
    ) -> None:
        """Take over the steps of a finished fit and what they guarantee, in one assignment."""
        steps = [(name, fitted.get(name, step)) for name, step in self.steps]
        for _, part in steps:
            if isinstance(part, PrivateEstimator):
                # Its share is stated by its guarantee, and would be one of its own in another fit.
                part.set_params(**_without_budget(part))
        results = {"steps": steps, "guarantee_": guarantee, "_names": names}
        self.__dict__ = vars(self) | results

    def _in_order_of_fit(self, X: Any) -> Any:
        """Return the columns of the fit by their names, where both have names."""
        return in_order_of(getattr(self, "_names", None), X)


def _checked_public(public_steps: Sequence[str], steps: dict[str, Any]) -> tuple[str, ...]:
    names = members_of(public_steps, "public_steps", "names of frozen steps, such as ['scale']")
    for name in names:
        if not isinstance(steps.get(name), FrozenEstimator):
            raise InvalidParameterError(
                f"public_steps names {name!r}, which is no frozen step: make it one by "
                "FrozenEstimator(step)"
            )
    return names


def _without_budget(step: PrivateEstimator) -> dict[str, Any]:
    blank = type(step)()
    return {name: getattr(blank, name) for name in ("epsilon", "delta", "neighbouring")}


def _check_no_budget(name: str, step: PrivateEstimator) -> None:
    for parameter, default in _without_budget(step).items():
        if getattr(step, parameter) != default:
            raise InvalidParameterError(
                f"step {name!r} has {parameter}={getattr(step, parameter)!r}: leave it out, the "
                "pipeline has one budget and one relation for all steps; weights are its shares"
            )


class _AllChecked(Exception):  # noqa: N818 - nothing went wrong
    """Raised where a fit would pay: all its checks are done."""

    def __init__(self, mu: float) -> None:
        super().__init__()
        self.mu = mu


class _StopsBeforePayment(PrivacyFilter):
    def spend(self, cost: Cost) -> None:
        """Stop the fit, and say what it would cost."""
        raise _AllChecked(stated_mu(cost, self.neighbouring))


def _costs(parts: Sequence[Any], records: Any, y: Any, relation: Neighbouring) -> list[float]:
    """Return the mu of each fit, after all of its checks and before any draw.

    Steps after the first one are checked on made-up records, with the targets as they are: what
    they will be fitted to is finite, whatever the records are.
    """
    costs, given = list[float](), records
    for part in parts:
        stopping = _StopsBeforePayment(Budget(part.epsilon, part.delta), neighbouring=relation)
        try:
            clone(part).fit(given, y, privacy_filter=stopping)
        except _AllChecked as stop:
            costs.append(stop.mu)
        if part is not parts[-1]:
            width = part.width_passed_on(np.shape(given)[1])
            given = np.full((len(given), width), _FAR)
    return costs
