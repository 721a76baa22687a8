"""Logistic regression by composed releases of gradients."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.estimators.exact_scores import exact_residuals
from matrixdp.estimators.inputs import checked_records
from matrixdp.estimators.linear_classifier import PrivateProbabilities
from matrixdp.estimators.ridge import checked_penalty, penalties
from matrixdp.estimators.spectrum import noise_norm, raised_spectrum
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.release import Release
from matrixdp.parameters import positive_integer, positive_number
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries import CrossMoment, Gram, PublicBounds
from matrixdp.queries.grid import RecordGrid

__all__ = ["PrivateLogisticRegression"]

FloatArray = NDArray[np.float64]

# Shares of mu^2 of the Gram matrix and of all gradients.
_SHARES = (1.0, 9.0)
_MOMENTUM = 0.5


class PrivateLogisticRegression(PrivateProbabilities):
    """Multinomial logistic regression by a fixed number of privately released gradients.

    Parameters
    ----------
    alpha : float, optional
        The penalty ``alpha / 2 |w|^2`` beside the sum of all losses, as scikit-learn's
        ``LogisticRegression`` has it for ``C = 1 / alpha``; the intercept has none. With ``bounds``
        it is on the weights of the scaled features.
    max_iter : int, optional
        How many gradients are released. All of them are, since stopping early by the data would
        leak.
    residual_norm : float, optional
        The norm that the residual of a record, its probabilities less the indicator of its class,
        is clipped to. It is below sqrt(2) in any case. A smaller bound takes less noise and gives
        badly fitted records less weight, which makes probabilities more extreme: where 0.9 is
        right, 0.5 leads to 0.961 for two classes. Pass 1.5 where probabilities matter.
    epsilon, delta, neighbouring, data_norm, bounds, classes : optional
        As in `PrivateRidgeClassifier`.

    Attributes
    ----------
    classes_, coef_, intercept_ : ndarray
        As in scikit-learn's ``LogisticRegression``.
    n_iter_ : int
        How many gradients were released.
    guarantee_, leaks_
        As in `PrivateRidge`.

    Notes
    -----
    *Guarantee:* all fitted attributes are functions of one release of `Gram`, of ``max_iter``
    releases of `CrossMoment` and of public numbers. The Gram matrix gets one part in ten of mu²,
    and the gradients equal shares of the rest; together they cost the budget and no more, also
    though each gradient is at weights that depend on earlier releases (Theorem 3 of the IMGM paper;
    Dong, Roth and Su, Gaussian differential privacy, 2022, Corollary 3.3).

    *Gradient.* With rows x and residuals r the gradient of the losses is the sum of ``x r^T``. It
    changes by at most ``|x| |r|`` for a record, twice that under replacing. The residual of a
    record depends on that record and on released weights alone, to the last bit. A float product of
    matrices would not do: its roundings depend on the index of a row.

    *Steps.* The Hessian of the losses is at most ``G / 2`` for each class, with G the Gram matrix
    of the rows (Böhning, Multinomial logistic regression algorithm, 1992). Steps divide by that
    bound, with eigenvalues of G raised to the norm of its noise, and keep half of the step before.
    So neither a step size nor the number of records is needed. The weights are the mean of those
    after the second half of the steps, which has less noise than the last ones.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = PrivateLogisticRegression(epsilon=3.0, data_norm=50.0, classes=range(10))
    >>> print(model.fit(X, y).guarantee_)
    (3, 1e-05)-differential privacy under replacing one record (mu = 0.7192).
    """

    n_iter_: int

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        max_iter: int = 20,
        residual_norm: float = 0.5,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        neighbouring: Neighbouring = "replace",
        data_norm: float | None = None,
        bounds: Any = None,
        classes: Any = None,
    ) -> None:
        self.alpha = alpha
        self.max_iter = max_iter
        self.residual_norm = residual_norm
        self.epsilon = epsilon
        self.delta = delta
        self.neighbouring = neighbouring
        self.data_norm = data_norm
        self.bounds = bounds
        self.classes = classes

    def fit(self, X: Any, y: Any, *, privacy_filter: Payer | None = None) -> Self:
        """Release a Gram matrix and the gradients, and follow them.

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
        PrivateLogisticRegression
            This estimator.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn; the message never shows a record.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn, and the last fit stays.
        """
        budget, alpha = self._checked_budget(), checked_penalty(self.alpha)
        steps = positive_integer(self.max_iter, "max_iter")
        residual_norm = positive_number(self.residual_norm, "residual_norm")
        fitted = self._unfitted()
        records, labels = checked_records(fitted, X, y)
        leaks: list[str] = []
        features = self._public_features(fitted, records, leaks)
        classes = self._public_classes(labels, leaks)
        indicators = classes.indicators(labels)
        query = CrossMoment(
            features.bounds_with_constant,
            PublicBounds(indicators.shape[1], norm=residual_norm),
            self.neighbouring,
        )
        # scikit-learn has one vector of weights for two classes: the difference of ours, whose
        # squared norm is twice the sum of theirs.
        penalty = penalties(features, alpha) * (2.0 if indicators.shape[1] == 2 else 1.0)
        for_gram, for_gradients = budget.split(_SHARES)
        self._before_release(budget, privacy_filter, leaks)
        grid = RecordGrid(features.bounds_with_constant)
        whole = grid(features.rows_with_constant(records))
        rows = whole * grid.steps
        second_moments = Gram(features.bounds_with_constant, self.neighbouring)
        of_gram = IMGM(second_moments, for_gram)
        of_gradients = [IMGM(query, part) for part in for_gradients.split(steps)]
        exact = second_moments.evaluate(rows)
        of_gram.prepared(exact)  # raises before anything is paid; gradients are smaller
        if privacy_filter is not None:
            privacy_filter.spend(self._together(budget, [of_gram, *of_gradients]))
        gram = of_gram.release(exact)
        weights, gradients = _descend(
            query,
            whole,
            indicators,
            grid_steps=grid.steps,
            hessian=_curvature(gram, penalty),
            penalty=penalty,
            mechanisms=of_gradients,
        )
        fitted.n_iter_ = steps
        self._set_scores(fitted, classes, *features.raw(weights))
        return self._publish(fitted, budget, [gram, *gradients], leaks)


def _curvature(gram: Release, penalty: FloatArray) -> FloatArray:
    """Return an upper bound of the Hessian of each class, from a released Gram matrix."""
    matrix = np.asarray(gram.value)
    return raised_spectrum(matrix, noise_norm(gram, len(matrix))) / 2.0 + np.diag(penalty)


def _descend(
    query: CrossMoment,
    whole: FloatArray,
    indicators: FloatArray,
    *,
    grid_steps: FloatArray,
    hessian: FloatArray,
    penalty: FloatArray,
    mechanisms: Sequence[IMGM],
) -> tuple[FloatArray, list[Release]]:
    """Return the mean weights of the second half of the steps, and the released gradients.

    Parameters
    ----------
    query : CrossMoment
        Of rows and residuals.
    whole, indicators : ndarray
        Private: the rows with the constant, as multiples of grid steps, and the classes.
    grid_steps : ndarray
        What the integers are multiples of, for each column.
    hessian, penalty : ndarray
        What steps are divided by, and the penalty of each weight.
    mechanisms : sequence of IMGM
        Of the gradients, one for each step.
    """
    weights = np.zeros((whole.shape[1], indicators.shape[1]))
    step, total = np.zeros_like(weights), np.zeros_like(weights)
    rows, releases, first = whole * grid_steps, list[Release](), len(mechanisms) // 2
    for mechanism in mechanisms:
        residuals = exact_residuals(whole, grid_steps[:, None] * weights, indicators)
        release = mechanism.release(query.evaluate(np.column_stack([rows, residuals])))
        gradient = np.asarray(release.value)
        # Residuals add up to 0, so a part that all classes share is noise and clipping.
        gradient = gradient - gradient.mean(axis=1, keepdims=True) + penalty[:, None] * weights
        step = _MOMENTUM * step - np.linalg.solve(hessian, gradient)
        weights = weights + step
        if len(releases) >= first:
            total += weights
        releases.append(release)
    return total / (len(mechanisms) - first), releases
