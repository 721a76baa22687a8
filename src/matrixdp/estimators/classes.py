"""Classes: a public list of them, and labels as places in it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import members_of

__all__ = ["PublicClasses", "classes_in"]

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

    def places(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Return the place of each label among the classes.

        Raises
        ------
        InvalidParameterError
            If a label is not among them; the message does not show it.
        """
        labels = _plain(y, "y")
        _check_discrete(labels)
        places, known = np.zeros(len(labels), dtype=np.intp), False
        if _is_text(labels) == _is_text(self.labels):
            places = np.clip(np.searchsorted(self.labels, labels), 0, len(self.labels) - 1)
            known = bool(np.all(self.labels[places] == labels))
        if not known:
            raise InvalidParameterError(
                "y holds a label that is not among classes: name every class that y may hold, in "
                "the type that y has"
            )
        return places

    def indicators(self, y: NDArray[Any]) -> FloatArray:
        """Return a row for each label with 1 at the place of its class and 0 elsewhere."""
        return np.asarray(np.eye(len(self.labels))[self.places(y)])


def classes_in(y: NDArray[Any]) -> PublicClasses:
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
            "Unknown label type: y holds numbers that are not whole, as the targets of a "
            "regression do; pass the class of each record"
        )


def _plain(labels: Any, name: str) -> NDArray[Any]:
    """Return labels as an array of numbers or of text, or raise if they are neither."""
    array = np.asarray(labels)
    if array.dtype.kind == "O":
        # Frames hold text and whole numbers as objects.
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
