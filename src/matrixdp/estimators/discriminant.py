"""Linear discriminant analysis from one release: counts, sums and second moments together."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.estimators.inputs import checked_records
from matrixdp.estimators.linear_classifier import PrivateProbabilities
from matrixdp.estimators.spectrum import noise_norm, raised_spectrum
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries import JointMoments, PublicBounds

__all__ = ["PrivateLinearDiscriminantAnalysis"]

FloatArray = NDArray[np.float64]


class PrivateLinearDiscriminantAnalysis(PrivateProbabilities):
    """Normal classes with one covariance, from privately released moments.

    Parameters
    ----------
    epsilon, delta, neighbouring, data_norm, bounds, classes : optional
        As in `PrivateRidgeClassifier`.

    Attributes
    ----------
    classes_, coef_, intercept_ : ndarray
        As in scikit-learn's ``LinearDiscriminantAnalysis``.
    priors_ : ndarray, shape (classes,)
        Shares of the classes, from released counts.
    means_ : ndarray, shape (classes, features)
        Means of the classes, from released sums and counts.
    covariance_ : ndarray, shape (features, features)
        Within the classes. Directions in which the data vary less than the noise are raised to the
        noise.
    guarantee_, leaks_
        As in `PrivateRidge`.

    Notes
    -----
    *Guarantee:* all fitted attributes are functions of one release of `JointMoments` of the rows
    and the indicators of their classes, with noise for the whole budget, and of public numbers. Its
    blocks are the second moments, the sums of the classes and, on the diagonal, their counts.

    *Units.* Indicators are multiplied by the norm bound of the rows, which makes the noise in the
    sums of classes smallest.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> y = generator.integers(2, size=2000)
    >>> X = generator.normal(size=(2000, 2)) + 3 * y[:, None]
    >>> model = PrivateLinearDiscriminantAnalysis(bounds=(-4, 8), classes=[0, 1]).fit(X, y)
    >>> model.predict([[-1.0, 0.0], [3.0, 4.0]])
    array([0, 1])
    """

    priors_: FloatArray
    means_: FloatArray
    covariance_: FloatArray

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.classes = classes

    def fit(self, X: Any, y: Any, *, privacy_filter: Payer | None = None) -> Self:
        """Release the moments and compute the discriminants.

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
        PrivateLinearDiscriminantAnalysis
            This estimator.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn; the message never shows a record.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn, and the last fit stays.
        """
        budget = self._checked_budget()
        fitted = self._unfitted()
        records, labels = checked_records(fitted, X, y)
        leaks: list[str] = []
        features = self._public_features(fitted, records, leaks)
        classes = self._public_classes(labels, leaks)
        indicators, unit = classes.indicators(labels), features.radius
        width, number = records.shape[1], len(classes.labels)
        query = JointMoments(
            features.bounds,
            PublicBounds(number, norm=unit, lower=0.0, upper=unit),
            self.neighbouring,
        )
        self._before_release(budget, privacy_filter, leaks)
        joined = np.column_stack([features.rows(records), unit * indicators])
        release = query.release(joined, budget, privacy_filter=privacy_filter)
        moments = np.asarray(release.value)
        counts = _class_counts(
            np.diagonal(moments)[width:] / unit**2, total=self._known_count(records)
        )
        means = (moments[:width, width:] / (unit * counts)).T
        within = raised_spectrum(
            moments[:width, :width] - (means.T * counts) @ means, noise_norm(release, width)
        ) / float(counts.sum())
        fitted.priors_ = counts / counts.sum()
        fitted.means_ = means * features.scale + features.centre
        fitted.covariance_ = within * np.outer(features.scale, features.scale)
        slopes, intercepts = _discriminants(fitted.means_, fitted.covariance_, fitted.priors_)
        self._set_scores(fitted, classes, slopes, intercepts)
        return self._publish(fitted, budget, [release], leaks)


def _class_counts(noisy: FloatArray, *, total: int | None) -> FloatArray:
    """Return positive counts from noisy ones: at least 1, and scaled to a total that is public."""
    counts = np.maximum(noisy, 1.0)
    return np.asarray(counts if total is None else counts * (total / counts.sum()))


def _discriminants(
    means: FloatArray, covariance: FloatArray, priors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return weights and intercepts of ``m.S^-1.x - m.S^-1.m / 2 + log prior`` for each class.

    Up to a constant these are the logarithms of the probabilities of normal classes with one
    covariance S (Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 2009,
    equation 4.10).
    """
    slopes = np.linalg.solve(covariance, means.T).T
    intercepts = np.log(priors) - 0.5 * (slopes * means).sum(axis=1)
    return np.asarray(slopes, dtype=np.float64), intercepts
