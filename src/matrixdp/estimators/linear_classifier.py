"""What linear classifiers share: a public list of classes, scores and predictions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from matrixdp.estimators.base import PrivateEstimator
from matrixdp.estimators.classes import PublicClasses, classes_in
from matrixdp.estimators.leaks import warn_of_leak

__all__ = ["PrivateLinearClassifier", "PrivateProbabilities"]

FloatArray = NDArray[np.float64]


class PrivateLinearClassifier(ClassifierMixin, PrivateEstimator):
    """Scores that are linear in the features; the class with the largest score is predicted.

    Attributes
    ----------
    classes_ : ndarray, shape (classes,)
        Sorted.
    coef_ : ndarray, shape (classes, features), or (1, features) for two classes
        Weights of the scores; for two classes those of the second class against the first.
    intercept_ : ndarray, shape (classes,) or (1,)
        What is added to the scores.
    """

    classes: Any
    classes_: NDArray[Any]
    coef_: FloatArray
    intercept_: FloatArray

    def _public_classes(self, y: NDArray[Any], leaks: list[str]) -> PublicClasses:
        """Return the classes; a list that is not given is taken from the data."""
        if self.classes is not None:
            return PublicClasses.of(self.classes)
        leaks.append("the set of classes in y")
        warn_of_leak(leaks[-1], "classes=[...]")
        return classes_in(y)

    def _set_scores(
        self, classes: PublicClasses, slopes: FloatArray, intercepts: FloatArray
    ) -> None:
        """Set the attributes from a row of weights and an intercept for each class."""
        self.classes_ = classes.labels
        if len(classes.labels) == 2:
            slopes, intercepts = slopes[1:] - slopes[:1], intercepts[1:] - intercepts[:1]
        self.coef_, self.intercept_ = slopes, intercepts

    def decision_function(self, X: Any) -> FloatArray:
        """Return the scores of records: a column for each class, or one number for two classes.

        Parameters
        ----------
        X : array_like, shape (records, features)
            What to score. The scores of private records are private.

        Returns
        -------
        ndarray
            Of shape (records, classes), or (records,) for two classes.
        """
        check_is_fitted(self)
        scores = self._new_records(X) @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if len(self.classes_) == 2 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each record with the largest score."""
        scores = self.decision_function(X)
        places = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[places])


class PrivateProbabilities(PrivateLinearClassifier):
    """A linear classifier whose scores are logarithms of probabilities, up to a constant."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, of shape (records, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probability of each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return np.asarray(special.log_softmax(scores, axis=1))
