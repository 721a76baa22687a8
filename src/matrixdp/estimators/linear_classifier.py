"""The base of linear classifiers: a public list of classes, scores and predictions."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from matrixdp.errors import InvalidParameterError
from matrixdp.estimators.base import PrivateEstimator, warn_of_leak
from matrixdp.parameters import members_of

__all__ = ["PrivateLinearClassifier", "PrivateProbabilities", "PublicClasses"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PublicClasses:
    """The classes that a label may be of, sorted.

    Attributes
    ----------
    labels : ndarray, shape (classes,)
        At least two, all different.
    """

    labels: NDArray[Any]

    @classmethod
    def of(cls, classes: Any) -> "PublicClasses":
        """Return the classes of a parameter, or raise if they are not a list of labels."""
        members = members_of(classes, "classes", "a list of all classes that y may hold")
        labels = np.unique(_plain(members, "classes"))
        if len(labels) != len(members):
            raise InvalidParameterError("classes names a class twice: name each of them once")
        return cls(_at_least_two(labels, "classes"))

    def indices(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of each label among the classes.

        Raises
        ------
        InvalidParameterError
            If a label is not among them; the message does not show it.
        """
        labels = _plain(y, "y")
        _check_discrete(labels)
        indices, known = np.zeros(len(labels), dtype=np.intp), False
        if _is_text(labels) == _is_text(self.labels):
            indices = np.clip(np.searchsorted(self.labels, labels), 0, len(self.labels) - 1)
            known = bool(np.all(self.labels[indices] == labels))
        if not known:
            raise InvalidParameterError(
                "y holds a label that is not among classes: name every class that y may hold, in "
                "the type that y has"
            )
        return indices

    def indicators(self, y: NDArray[Any]) -> FloatArray:
        """Return a row for each label with 1 at the index of its class and 0 elsewhere."""
        return np.asarray(np.eye(len(self.labels))[self.indices(y)])


def _classes_in(y: NDArray[Any]) -> PublicClasses:
    """Return the classes that labels are of, which are private.

    Raises
    ------
    InvalidParameterError
        If there is only one class, or if the labels are numbers of a regression.
    """
    labels = _plain(y, "y")
    _check_discrete(labels)
    return PublicClasses(_at_least_two(np.unique(labels), "y"))


def _check_discrete(labels: NDArray[Any]) -> None:
    if labels.dtype.kind == "f" and not bool(np.all(labels == np.rint(labels))):
        raise InvalidParameterError(
            "Unknown label type: y holds numbers that are no integers, as the targets of a "
            "regression do; pass the class of each record"
        )


def _plain(labels: Any, name: str) -> NDArray[Any]:
    """Return labels as an array of numbers or of text, or raise if they are neither."""
    array = np.asarray(labels)
    if array.dtype.kind == "O":
        # Frames hold text and integers as objects.
        kinds = {_kind(label) for label in array.reshape(-1)}
        array = np.array(array.tolist()) if len(kinds) == 1 and None not in kinds else array
    if array.ndim != 1 or array.dtype.kind not in "biufUT":
        raise InvalidParameterError(
            f"{name} must be a list of labels of one type, all numbers or all text"
        )
    return array


def _kind(label: object) -> str | None:
    if isinstance(label, str):
        return "text"
    return "number" if isinstance(label, int | float | np.number | np.bool_) else None


def _at_least_two(labels: NDArray[Any], name: str) -> NDArray[Any]:
    if len(labels) < 2:
        raise InvalidParameterError(
            f"{name} has at most one class: a classifier needs two or more, which classes=[...] "
            "names; some of them may have no record"
        )
    return labels


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "UT"


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
        return _classes_in(y)

    def _set_scores(
        self, fitted: Self, classes: PublicClasses, slopes: FloatArray, intercepts: FloatArray
    ) -> None:
        """Set the results of a fit from a row of weights and an intercept for each class."""
        fitted.classes_ = classes.labels
        if len(classes.labels) == 2:
            slopes, intercepts = slopes[1:] - slopes[:1], intercepts[1:] - intercepts[:1]
        fitted.coef_, fitted.intercept_ = slopes, intercepts

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
        indices = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[indices])


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
        return np.asarray(scipy.special.log_softmax(scores, axis=1))
