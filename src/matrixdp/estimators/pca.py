"""Principal components from one release of second moments and sums."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.base import PrivateTransformer
from matrixdp.estimators.exact_scores import exact_scores
from matrixdp.estimators.inputs import checked_features, checked_transformed
from matrixdp.parameters import positive_integer
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries import JointMoments, PublicBounds
from matrixdp.queries.grid import RecordGrid

__all__ = ["PrivatePCA"]

FloatArray = NDArray[np.float64]

# The constant t R beside rows of norm R. The noise is (1 + t^2) times as large, and that of the
# mean m counts |m| / (t R) times as much as that of the second moments. For means of length R / 10
# to R / 2 this is within 12 per cent of the best.
_CONSTANT_SHARE = 1.0 / 3.0


class PrivatePCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateTransformer):
    """Principal components of a privately released covariance matrix.

    Parameters
    ----------
    n_components : int, optional
        How many components to keep; all of them by default.
    epsilon, delta : float, optional
        What one fit spends.
    neighbouring : {"replace", "add-remove"}, optional
        What neighbouring data sets are.
    data_norm : float, optional
        A public norm that every record is clipped to, about 0; with ``bounds`` about their middle.
    bounds : (lower, upper), optional
        A public range, of all features or of each, that records are clamped to;
        ``{name: (lower, upper), ...}`` for features with names. Its middle is subtracted, which
        makes the noise smaller; features are not scaled.

    Attributes
    ----------
    components_ : ndarray, shape (n_components, features)
        Orthonormal rows, those with the largest variance first. The entry of largest absolute value
        of each is positive.
    explained_variance_ : ndarray, shape (n_components,)
        The variance of each component by the released matrix.
    explained_variance_ratio_ : ndarray, shape (n_components,)
        The same over the variance of all components.
    mean_ : ndarray, shape (features,)
        Released together with the second moments.
    guarantee_, leaks_
        As in `PrivateRidge`.

    Notes
    -----
    *Guarantee:* all fitted attributes are functions of one release of `JointMoments` of the rows
    and a constant, with noise for the whole budget, and of public numbers.

    *Centring.* With a constant of a third of the norm bound R beside each row, sums come with the
    second moments, and a replaced record changes both together by at most ``sqrt(2) R^2 10 / 9``.
    The scatter about the data's own mean changes by up to ``4 R^2``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = PrivatePCA(n_components=2, data_norm=50.0).fit(X)
    >>> model.transform(X).shape
    (1797, 2)
    >>> print(model.guarantee_)
    (1, 1e-05)-differential privacy under replacing one record (mu = 0.2681).
    """

    components_: FloatArray
    explained_variance_: FloatArray
    explained_variance_ratio_: FloatArray
    mean_: FloatArray
    n_components_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
    ) -> None:
        self.n_components = n_components
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
        """Release the moments and find the components.

        Parameters
        ----------
        X : array_like, shape (records, features)
            Records in rows.
        y : ignored
            Part of the interface.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the fit, all at once, after all checks and before anything is drawn. A pipeline
            passes it as ``step__privacy_filter``.

        Returns
        -------
        PrivatePCA
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
        width = records.shape[1]
        kept = self._checked_components(width)
        leaks: list[str] = []
        features = self._public_features(fitted, records, leaks, rescale=False)
        constant = _CONSTANT_SHARE * features.radius
        query = JointMoments(
            features.bounds,
            # A norm: features and the constant stay in the units in which their shares are chosen.
            PublicBounds(1, norm=constant, lower=0.0, upper=constant),
            self.neighbouring,
        )
        self._before_release(budget, privacy_filter, leaks)
        joined = np.column_stack([features.rows(records), np.full(len(records), constant)])
        release = query.release(joined, budget, privacy_filter=privacy_filter)
        moments, count = np.asarray(release.value), self._known_count(records)
        found = float(moments[width, width]) / constant**2
        total = max(found, 1.0) if count is None else float(count)
        mean = moments[:width, width] / (constant * total)
        covariance = (moments[:width, :width] - total * np.outer(mean, mean)) / max(total - 1, 1)
        variances, directions = _principal_directions(covariance)
        fitted.n_components_ = kept
        fitted.components_ = directions[:kept]
        fitted.explained_variance_ = variances[:kept]
        fitted.explained_variance_ratio_ = variances[:kept] / max(
            variances.sum(), np.finfo(float).tiny
        )
        fitted.mean_ = mean + features.centre
        return self._publish(fitted, budget, [release], leaks)

    def _checked_components(self, width: int) -> int:
        if self.n_components is None:
            return width
        kept = positive_integer(self.n_components, "n_components")
        if not kept <= width:
            raise InvalidParameterError(
                f"n_components={kept} is more than the {width} features: pass at most that many"
            )
        return kept

    def transform(self, X: Any) -> FloatArray:
        """Return the coordinates of records, which are private if the records are."""
        check_is_fitted(self)
        return np.asarray((self._new_records(X) - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return records from coordinates of shape (records, n_components)."""
        check_is_fitted(self)
        coordinates = checked_transformed(X, self.n_components_, "component")
        return np.asarray(coordinates @ self.components_ + self.mean_)

    def width_passed_on(self, width: int) -> int:
        """Return the number of components."""
        return self._checked_components(width)

    def rows_passed_on(self, X: Any) -> FloatArray:
        """Return the coordinates of records within the bounds; see `PrivateTransformer`."""
        records = self._new_records(X)
        features = self._public_features(self, records, [], rescale=False)
        grid = RecordGrid(features.bounds)
        whole = grid(features.rows(records))
        # Not the product of floats, whose roundings depend on how many rows there are.
        scores = exact_scores(whole, grid.steps[:, None] * self.components_.T)
        return np.asarray(scores + (features.centre - self.mean_) @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        """How many columns ``transform`` gives; scikit-learn names them."""
        return self.n_components_


def _principal_directions(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return variances, largest first, and directions in rows; negative variances become 0."""
    values, vectors = np.linalg.eigh(covariance)
    directions = vectors[:, ::-1].T
    largest = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return np.maximum(values[::-1], 0.0), np.asarray(directions * signs[:, None])
