"""A pipeline within one budget, whose steps learn from the records privately or not at all."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.base import PrivateEstimator, PrivateTransformer
from matrixdp.estimators.counted_fits import CountedFits
from matrixdp.parameters import names_of
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.filter import PrivacyFilter
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.privacy.payment import Cost, Payer, stated_mu

__all__ = ["PrivatePipeline"]

# Clipped to any bounds, so that made-up records give the largest numbers that there can be.
_FAR = 1e300


class PrivatePipeline(CountedFits, Pipeline):
    """Steps that are fitted one after another within one budget.

    Parameters
    ----------
    steps : list of (str, estimator)
        In front those that learn nothing here: stateless ones such as ``FunctionTransformer``, and
        ``FrozenEstimator(step)``, which declares that a step was fitted to public data. After them
        private ones, without a budget or a relation of their own. Anything else is refused.
    epsilon, delta : float, optional
        What one fit spends.
    neighbouring : {"replace", "add-remove"}, optional
        What neighbouring data sets are.
    shares : sequence of float, optional
        Weights by which mu² is split among the private steps; by default all have the same.

    Attributes
    ----------
    guarantee_ : Guarantee
        What all steps that were fitted here guarantee together. A frozen step that was fitted to
        private data before is paid for elsewhere.

    Notes
    -----
    *Guarantee:* the squares of the mu of all steps add up to at most that of the budget, also
    though a step depends on what earlier ones released (Dong, Roth and Su, Gaussian differential
    privacy, 2022, Corollary 3.3). In a fit, a step in front gets each record by itself, so that it
    cannot mix records, and a private step passes on rows that each depend on one record alone. All
    checks of all steps come before the first payment.

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

    guarantee_: Guarantee

    def __init__(
        self,
        steps: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        shares: Sequence[float] | None = None,
    ) -> None:
        self.steps = steps
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.shares = shares

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
            records = _one_by_one(name, fresh, records)
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
        self._publish(dict(zip([name for name, _ in private], parts, strict=True)), guarantee)
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
        in_front, private = list[tuple[str, Any]](), list[tuple[str, PrivateEstimator]]()
        for _, name, step in self._iter():
            if isinstance(step, PrivateEstimator):
                _check_no_budget(name, step)
                if private and not isinstance(private[-1][1], PrivateTransformer):
                    raise InvalidParameterError(f"step {private[-1][0]!r} must be the last one")
                private.append((name, step))
                continue
            if not isinstance(step, FrozenEstimator) and get_tags(step).requires_fit:
                raise InvalidParameterError(
                    f"step {name!r} is a {type(step).__name__}, which would learn from all records "
                    "without privacy: use a private one, such as PrivateStandardScaler, or fit it "
                    "to public data and pass FrozenEstimator(step)"
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

    def _publish(self, fitted: dict[str, PrivateEstimator], guarantee: Guarantee) -> None:
        """Take over the steps of a finished fit and what they guarantee, in one assignment."""
        steps = [(name, fitted.get(name, step)) for name, step in self.steps]
        for _, part in steps:
            if isinstance(part, PrivateEstimator):
                # Its share is stated by its guarantee, and would be one of its own in another fit.
                part.set_params(**_without_budget(part))
        self.__dict__ = vars(self) | {"steps": steps, "guarantee_": guarantee}


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


def _one_by_one(name: str, step: Any, records: Any) -> Any:
    """Return what a step gives for each record, which it gets by itself; names of columns stay."""
    _check_no_shared_categories(name, records)
    sliced, parts = getattr(records, "iloc", records), list[Any]()
    refusal: str | None = None
    try:
        parts = [step.transform(sliced[i : i + 1]) for i in range(len(records))]
        rows = [np.asarray(part) for part in parts]
    except Exception as error:  # noqa: BLE001 - whatever it raises may show the record
        refusal = type(error).__name__
    if refusal is not None:
        raise InvalidParameterError(
            f"step {name!r} raises {refusal} for a record by itself: it must be fitted to public "
            "data, and treat each record alone"
        )
    if not rows or any(row.ndim != 2 or row.shape != (1, *rows[0].shape[1:]) for row in rows):
        raise InvalidParameterError(
            f"step {name!r} must give a row of one width for each record; sparse ones are refused"
        )
    return _with_names(name, np.concatenate(rows), parts)


def _check_no_shared_categories(name: str, records: Any) -> None:
    """Raise if a record by itself shows the categories of all: codes of pandas, polars or Arrow."""
    kinds = getattr(getattr(records, "schema", None), "types", getattr(records, "dtypes", ()))
    listed = np.array(kinds, dtype=object).ravel()  # a column alone has one kind
    if any(str(kind).lower().startswith(("categor", "dictionary")) for kind in listed):
        raise InvalidParameterError(
            f"step {name!r} would get categories that are listed from all records: pass columns "
            "of text, and list public categories in the step"
        )


def _with_names(name: str, table: NDArray[Any], parts: Sequence[Any]) -> Any:
    """Return a table as a frame of the kind that its rows were, if they had names."""
    names = names_of(parts[0])
    if any(names_of(part) != names for part in parts):
        raise InvalidParameterError(
            f"step {name!r} must give every record columns of the same names"
        )
    if names is None:
        return table
    kind = type(parts[0])
    if hasattr(parts[0], "iloc"):
        return kind(table, columns=names)
    if hasattr(parts[0], "from_arrays"):
        return kind.from_arrays(list(table.T), names=names)
    return kind(table, schema=names)


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
