"""Means and scales of features from one release of sums and sums of squares."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from matrixdp.estimators.base import PrivateTransformer
from matrixdp.estimators.inputs import checked_features, checked_transformed
from matrixdp.estimators.public_features import PublicFeatures
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries import PublicBounds, Sum

__all__ = ["PrivateStandardScaler"]

FloatArray = NDArray[np.float64]


class PrivateStandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateTransformer):
    """Features less their means, divided by their standard deviations; both are released.

    Parameters
    ----------
    epsilon, delta, neighbouring, data_norm, bounds : optional
        As in `PrivateRidge`.

    Attributes
    ----------
    mean_, scale_ : ndarray, shape (features,)
        What is subtracted, and what is divided by.
    var_ : ndarray, shape (features,)
        The square of ``scale_``. A feature that varies less than the noise has the standard error
        of its variance.
    guarantee_, leaks_
        As in `PrivateRidge`.

    Notes
    -----
    *Guarantee:* all fitted attributes are functions of one release of `Sum`, with noise for the
    whole budget, and of public numbers. With u a row divided by the largest entries that the bounds
    allow, the sum is that of u, of the squares of its entries, and of 1 where the number of records
    is private. If rho bounds the norm of u, then that of a term is at most
    ``sqrt(2 rho^2 + 1)``, since the squares of entries up to 1 are not larger than the entries.

    An estimator with ``bounds`` scales by them, which costs nothing. A scaler is for features that
    vary much less than their bounds, which are known only roughly.

    Examples
    --------
    >>> import numpy as np
    >>> from matrixdp.estimators import PrivateStandardScaler
    >>> X = np.random.default_rng(0).normal([170.0, 70.0], [10.0, 12.0], size=(5000, 2))
    >>> scaler = PrivateStandardScaler(bounds=([100, 0], [250, 300])).fit(X)
    >>> print(scaler.guarantee_)
    (1, 1e-05)-differential privacy under replacing one record (mu = 0.2681).
    >>> bool(np.abs(scaler.mean_ - [170.0, 70.0]).max() < 3.0)
    True
    """

    mean_: FloatArray
    scale_: FloatArray
    var_: FloatArray

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - pipelines pass y
        *,
        privacy_filter: Payer | None = None,
    ) -> Self:
        """Release the sums, and compute means and deviations.

        Parameters
        ----------
        X : array_like, shape (records, features)
            Records in rows.
        y : ignored
            Part of the interface.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the fit, all at once, after all checks and before anything is drawn.

        Returns
        -------
        PrivateStandardScaler
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
        records = checked_features(fitted, X, reset=True)
        leaks: list[str] = []
        features = self._public_features(fitted, records, leaks)
        count, width = self._known_count(records), records.shape[1]
        query = Sum(_bounds_of_terms(features, counted=count is None), self.neighbouring)
        self._before_release(budget, privacy_filter, leaks)
        units = features.rows(records) / features.bounds.largest_entries
        terms = [units, units**2, np.ones((len(records), 1))][: 3 if count is None else 2]
        release = query.release(np.hstack(terms), budget, privacy_filter=privacy_filter)
        sums, scales = release.value[0], release.covariance.entry_scales(release.shape)[0]
        total = max(float(sums[-1]), 1.0) if count is None else float(count)
        mean = np.clip(sums[:width] / total, -1.0, 1.0)
        # The standard error of the difference; a smaller one says nothing about the data.
        least = np.hypot(scales[width : 2 * width], 2.0 * mean * scales[:width]) / total
        variance = np.clip(sums[width : 2 * width] / total - mean**2, np.minimum(least, 1.0), 1.0)
        unit = features.scale * features.bounds.largest_entries
        fitted.mean_ = features.centre + unit * mean
        fitted.scale_ = unit * np.sqrt(variance)
        fitted.var_ = fitted.scale_**2
        return self._publish(fitted, budget, [release], leaks)

    def transform(self, X: Any) -> FloatArray:
        """Return the scaled records, which are private if the records are."""
        check_is_fitted(self)
        return (self._new_records(X) - self.mean_) / self.scale_

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return records from scaled ones."""
        check_is_fitted(self)
        return checked_transformed(X, len(self.scale_), "feature") * self.scale_ + self.mean_

    def width_passed_on(self, width: int) -> int:
        """Return the number of features."""
        return width

    def rows_passed_on(self, X: Any) -> FloatArray:
        """Return the scaled records within the bounds; see `PrivateTransformer`."""
        records = self._new_records(X)
        features = self._public_features(self, records, [])
        # Entry by entry, so that a row depends on its record alone.
        inside = features.rows(records) * features.scale + features.centre
        return np.asarray((inside - self.mean_) / self.scale_)


def _bounds_of_terms(features: PublicFeatures, *, counted: bool) -> PublicBounds:
    """Return the bounds of rows in units of their largest entries, their squares, and perhaps 1."""
    width, largest = features.bounds.columns, features.bounds.largest_entries
    lower = np.repeat([-1.0, 0.0], [width, width + counted])
    squared_norm = (features.radius / float(largest.min())) ** 2
    # Where the norm allows the whole box, or does not have one unit, the box says it all.
    if features.bounds.norm is None or not squared_norm < width:
        return PublicBounds(len(lower), lower=lower, upper=1.0)
    norm = float(np.sqrt(2.0 * squared_norm + counted)) * (1.0 + 1e-12)
    return PublicBounds(len(lower), norm=norm, lower=lower, upper=1.0)
