"""Ridge regression and classification from one release of moments."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.base import PrivateEstimator, warn_of_leak
from matrixdp.estimators.inputs import checked_records
from matrixdp.estimators.linear_classifier import PrivateLinearClassifier
from matrixdp.estimators.linear_moments import release_moments
from matrixdp.estimators.public_features import PublicFeatures, public_range
from matrixdp.parameters import real_number
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer

__all__ = ["PrivateRidge", "PrivateRidgeClassifier", "checked_penalty", "penalties"]

FloatArray = NDArray[np.float64]

_LARGEST_PENALTY = 1e250


class PrivateRidge(RegressorMixin, PrivateEstimator):
    """Linear least squares with an l2 penalty, from privately released moments.

    Parameters
    ----------
    alpha : float, optional
        The penalty ``alpha |w|^2``, as in scikit-learn's ``Ridge``; the intercept has none. With
        ``bounds`` it is on the weights of the scaled features, so that no unit matters.
    epsilon, delta : float, optional
        What one fit spends.
    neighbouring : {"replace", "add-remove"}, optional
        What neighbouring data sets are. Under ``replace`` the number of records is public; under
        ``add-remove`` it is private, and only its released value is used.
    data_norm : float, optional
        A public norm that every record is clipped to, about 0; with ``bounds`` after its features
        were moved and scaled.
    bounds : (lower, upper), optional
        A public range, of all features or of each, that records are clamped to;
        ``{name: (lower, upper), ...}`` for features with names. Features are moved and scaled by it
        to [-1, 1].
    target_bounds : (float, float), optional
        A public range that targets are clamped to.

    Attributes
    ----------
    coef_ : ndarray, shape (features,)
        The weights.
    intercept_ : float
        The prediction at 0.
    guarantee_ : Guarantee or None
        What a fit guarantees; None if bounds were taken from the data.
    leaks_ : tuple of str
        What was taken from the data.

    Notes
    -----
    *Guarantee:* all fitted attributes are functions of one release of `JointMoments`, with noise
    for the whole budget, and of public numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from matrixdp.estimators import PrivateRidge
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 3))
    >>> model = PrivateRidge(epsilon=1.0, delta=1e-6, bounds=(-1, 1), target_bounds=(-2, 2))
    >>> print(model.fit(X, X @ [1.0, -0.5, 0.2]).guarantee_)
    (1, 1e-06)-differential privacy under replacing one record (mu = 0.2368).
    >>> model.coef_.shape
    (3,)
    """

    coef_: FloatArray
    intercept_: float

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
        target_bounds: Any = None,
    ) -> None:
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.target_bounds = target_bounds

    def fit(self, X: Any, y: Any, *, privacy_filter: Payer | None = None) -> Self:
        """Release the moments and solve for the weights.

        Parameters
        ----------
        X : array_like, shape (records, features)
            Records in rows.
        y : array_like, shape (records,)
            A number for each record.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the fit, all at once, after all checks and before anything is drawn. A pipeline
            passes it as ``step__privacy_filter``.

        Returns
        -------
        PrivateRidge
            This estimator.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn; the message never shows a record.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn, and the last fit stays.
        """
        budget, alpha = self._checked_budget(), checked_penalty(self.alpha)
        fitted = self._unfitted()
        records, given = checked_records(fitted, X, y)
        answers, leaks = _numbers(given), list[str]()
        features = self._public_features(fitted, records, leaks)
        centre, half = self._target_range(answers, leaks)
        # Clamped before it is moved: a difference with a huge number could overflow.
        reach = np.clip(answers, centre - half, centre + half)
        targets = np.clip((reach - centre) / half, -1.0, 1.0)
        penalty = penalties(features, alpha)
        self._before_release(budget, privacy_filter, leaks)
        moments = release_moments(
            features,
            features.rows(records),
            targets[:, None],
            neighbouring=self.neighbouring,
            budget=budget,
            count=self._known_count(records),
            privacy_filter=privacy_filter,
        )
        slopes, intercepts = features.raw(moments.weights(penalty))
        fitted.coef_ = half * slopes[0]
        fitted.intercept_ = float(half * intercepts[0] + centre)
        return self._publish(fitted, budget, [moments.release], leaks)

    def _target_range(self, answers: FloatArray, leaks: list[str]) -> tuple[float, float]:
        """Return the middle of the targets' range and half its length."""
        if self.target_bounds is None:
            leaks.append("the smallest and the largest target in y")
            warn_of_leak(leaks[-1], "target_bounds=(lower, upper)")
            lower, upper = float(answers.min()), float(answers.max())
            centre, half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
            return centre, half if half > 0.0 else max(abs(centre), 1.0)
        ends = public_range(self.target_bounds, "target_bounds", 1)
        lower, upper = float(ends[0][0]), float(ends[1][0])
        centre, half = lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0
        # Half of the smallest float is 0.
        if not half > 0.0:
            raise InvalidParameterError(
                f"target_bounds=({lower!r}, {upper!r}): lower must be below upper"
            )
        return centre, half

    def predict(self, X: Any) -> FloatArray:
        """Return a number for each record; predictions for private records are private."""
        check_is_fitted(self)
        return np.asarray(self._new_records(X) @ self.coef_ + self.intercept_)


class PrivateRidgeClassifier(PrivateLinearClassifier):
    """Ridge regression on the indicators of classes, from privately released moments.

    Parameters
    ----------
    alpha : float, optional
        The penalty ``alpha |w|^2`` of each class, as in `PrivateRidge`.
    epsilon, delta, neighbouring, data_norm, bounds : optional
        As in `PrivateRidge`.
    classes : list, optional
        All classes that y may hold; public. A class may have no record.

    Attributes
    ----------
    classes_, coef_, intercept_ : ndarray
        As in scikit-learn's ``RidgeClassifier``.
    guarantee_, leaks_
        As in `PrivateRidge`.

    Notes
    -----
    *Guarantee:* that of `PrivateRidge`. The target of a record is the indicator of its class less
    the same number for all classes, a vector of one norm for every class.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateRidgeClassifier(epsilon=3.0, data_norm=50.0, classes=range(10))
    >>> print(model.fit(X, y).guarantee_)
    (3, 1e-05)-differential privacy under replacing one record (mu = 0.7192).
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.alpha = alpha
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.classes = classes

    def fit(self, X: Any, y: Any, *, privacy_filter: Payer | None = None) -> Self:
        """Release the moments and solve for the weights of every class.

        Parameters
        ----------
        X : array_like, shape (records, features)
            Records in rows.
        y : array_like, shape (records,)
            The class of each record.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the fit, all at once, after all checks and before anything is drawn. A pipeline
            passes it as ``step__privacy_filter``.

        Returns
        -------
        PrivateRidgeClassifier
            This estimator.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn; the message never shows a record.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn, and the last fit stays.
        """
        budget, alpha = self._checked_budget(), checked_penalty(self.alpha)
        fitted = self._unfitted()
        records, labels = checked_records(fitted, X, y)
        leaks: list[str] = []
        features = self._public_features(fitted, records, leaks)
        classes = self._public_classes(labels, leaks)
        centred, length = _centred_indicators(classes.indicators(labels))
        penalty = penalties(features, alpha)
        self._before_release(budget, privacy_filter, leaks)
        moments = release_moments(
            features,
            features.rows(records),
            centred / length,
            neighbouring=self.neighbouring,
            budget=budget,
            count=self._known_count(records),
            privacy_filter=privacy_filter,
        )
        # From indicators to targets of -1 and 1, which scikit-learn regresses on.
        weights = length * moments.weights(penalty)
        slopes, intercepts = features.raw(weights)
        many = len(classes.labels) > 2
        shift = 2.0 / len(classes.labels) - 1.0
        self._set_scores(
            fitted,
            classes,
            2.0 * slopes if many else slopes,
            2.0 * intercepts + shift if many else intercepts,
        )
        return self._publish(fitted, budget, [moments.release], leaks)


def _centred_indicators(indicators: FloatArray) -> tuple[FloatArray, float]:
    """Return indicators of k classes less 1 / k, and their norm ``sqrt(1 - 1 / k)``."""
    share = 1.0 / indicators.shape[1]
    return indicators - share, float(np.sqrt(1.0 - share))


def checked_penalty(alpha: Any) -> float:
    """Return a penalty, or raise if it is negative, not a number or too large for arithmetic."""
    number = real_number(alpha, "alpha")
    if not 0.0 <= number <= _LARGEST_PENALTY:
        raise InvalidParameterError(
            f"alpha={number!r} must be from 0 to {_LARGEST_PENALTY}: with so large a one all "
            "weights would be 0"
        )
    return number


def penalties(features: PublicFeatures, alpha: float) -> FloatArray:
    """Return the penalty of each weight of rows with the constant, which has none."""
    return np.append(np.full(features.bounds.columns, alpha), 0.0)


def _numbers(answers: NDArray[Any]) -> FloatArray:
    """Return targets as numbers, or raise if they are not; none of them is shown."""
    # Beyond the largest float a target is infinite, and clamped without a word.
    with np.errstate(over="ignore"):
        if answers.dtype.kind in "biuf":
            return answers.astype(np.float64)
        try:
            # Dates would become numbers in a unit that nobody stated.
            numbers = None if answers.dtype.kind in "mM" else answers.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = None
    if numbers is None or not bool(np.isfinite(numbers).all()):
        raise InvalidParameterError("y cannot be read: pass one finite number for each record")
    return np.asarray(numbers)
