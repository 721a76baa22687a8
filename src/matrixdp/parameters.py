"""What a parameter must be, said in one place: checks that refuse by name and value.

Every comparison is written so that NaN fails it. A bool is not a number here (``delta=True`` is
always a mistake), nor is anything that float64 cannot hold exactly enough to keep its meaning.
"""

import math
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from matrixdp.errors import InvalidParameterError, ShapeError

__all__ = [
    "DELTA",
    "EPSILON",
    "LARGEST_EXACT_INTEGER",
    "MU",
    "Domain",
    "broadcast_together",
    "check_cells",
    "finite_array",
    "members_of",
    "positive_integer",
    "positive_number",
    "real_number",
]


LARGEST_EXACT_INTEGER = 2**53
"""The largest of the integers that float64 holds without a gap."""

_NUMBERS = (float, int, np.floating, np.integer)
# A bool is an int and a long double is floating, but neither means what a float64 means.
_LOOKALIKES = (bool, np.longdouble)


@dataclass(frozen=True, slots=True)
class Domain:
    """A closed interval that a named parameter must lie in, and what to do when it does not."""

    name: str
    smallest: float
    largest: float
    advice: str

    def number(self, value: Any) -> float:
        """Return the value as a float of this domain, or refuse it."""
        number = real_number(value, self.name)
        if not self.smallest <= number <= self.largest:
            raise self._outside(number, "")
        return number

    def numbers(self, value: Any) -> float | NDArray[np.float64]:
        """Return a number as a float and anything array-like as float64, or refuse it."""
        if isinstance(value, float | int):
            return self.number(value)
        array = _real_array(value, self.name)
        if array.ndim == 0:
            return self.number(array.item())
        outside = ~((array >= self.smallest) & (array <= self.largest))
        if outside.any():
            place = tuple(int(index) for index in np.argwhere(outside)[0])
            raise self._outside(float(array[place]), f" at index {place}")
        return array

    def _outside(self, number: float, place: str) -> InvalidParameterError:
        return InvalidParameterError(
            f"{self.name}={number!r}{place} is outside its domain: it must be a finite number from "
            f"{self.smallest!r} to {self.largest!r}; {self.advice}"
        )


EPSILON = Domain(
    "epsilon", 0.0, 1e6, "0 is the strictest and anything above about 10 protects little"
)
DELTA = Domain(
    "delta",
    sys.float_info.min,
    1.0 - 1e-12,
    "choose it well below one over the number of records, for instance 1e-6",
)
MU = Domain("mu", 0.0, 1e4, "it is sensitivity / noise scale, about 0.1 to 3 in practice")


def real_number(value: Any, name: str) -> float:
    """Return a finite or infinite real number as a float; refuse NaN and what is no number."""
    if isinstance(value, _NUMBERS) and not isinstance(value, _LOOKALIKES):
        number = _as_float(value, name)
    else:
        raise InvalidParameterError(
            f"{name}={value!r} is of type {type(value).__name__}: {name} must be a real number; "
            "pass a float or an int"
        )
    if math.isnan(number):
        raise InvalidParameterError(f"{name}={number!r} is not a number: pass a finite value")
    return number


def positive_number(value: Any, name: str) -> float:
    """Return a positive finite number as a float, or refuse it."""
    number = real_number(value, name)
    if not 0.0 < number < math.inf:
        raise InvalidParameterError(
            f"{name}={number!r} is outside its domain: it must be positive and finite"
        )
    return number


def positive_integer(value: Any, name: str) -> int:
    """Return a whole number from 1 to 2**63 as an int, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not value >= 1:
        raise InvalidParameterError(f"{name}={value!r} must be a whole number of at least 1")
    if not value <= 2**63:
        raise InvalidParameterError(f"{name} is an integer beyond 2**63: pass a smaller one")
    return int(value)


def broadcast_together(
    first: float | NDArray[np.float64],
    second: float | NDArray[np.float64],
    names: tuple[str, str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both arguments as arrays of their common shape, or refuse shapes that have none."""
    try:
        pair = np.broadcast_arrays(first, second)
    except ValueError:
        raise ShapeError(
            f"{names[0]} of shape {np.shape(first)} and {names[1]} of shape {np.shape(second)} do "
            "not broadcast together: make their shapes equal, or 1 where they differ"
        ) from None
    return pair[0], pair[1]


def _as_float(value: Any, name: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if isinstance(value, int) and (number == math.inf or int(number) != value):
        raise InvalidParameterError(
            f"{name} is an integer of {value.bit_length()} bits that no float holds exactly: pass "
            "a float, rounded to the private side"
        )
    return number


def check_cells(value: Any, name: str, *, bools: bool = False) -> None:
    """Check what numpy would make floats unseen in nested lists, tuples and ranges.

    Refused are integers beyond 2**53, masked rows, sparse matrices and, unless ``bools`` says
    otherwise, truth values; what is no list is left to its reader.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidParameterError(f"{name} is a masked array: fill its gaps, then pass its data")
    if isinstance(value, bool | np.bool_):
        if not bools:
            raise InvalidParameterError(f"{name} holds truth values: pass numbers")
    elif isinstance(value, int | np.integer):
        _check_exact(int(value), name)
    elif isinstance(value, list | tuple | range):
        for part in value:
            check_cells(part, name, bools=bools)
    elif sparse.issparse(value):
        raise InvalidParameterError(f"{name} is sparse: pass its .toarray()")
    elif hasattr(value, "__array__"):
        _check_cells_of(np.asarray(value), name, bools=bools)


def _check_cells_of(array: NDArray[Any], name: str, *, bools: bool) -> None:
    if array.dtype.kind == "b":
        check_cells(bool(array.flat[0]) if array.size else 0, name, bools=bools)
    elif array.dtype.kind in "iu" and array.size:
        _check_exact(int(array.max()), name)
        _check_exact(int(array.min()), name)


def _check_exact(number: int, name: str) -> None:
    if abs(number) > LARGEST_EXACT_INTEGER:
        raise InvalidParameterError(
            f"{name} holds integers beyond 2**53, which float64 cannot hold exactly: scale them, "
            "or pass float64 numbers rounded to the private side"
        )


def finite_array(value: Any, name: str) -> NDArray[np.float64]:
    """Return finite real numbers of any shape as a new float64 array, or refuse them unseen."""
    check_cells(value, name, bools=True)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name} is ragged: pass numbers in an array of one shape") from None
    if array.dtype.kind not in "iufb" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        raise InvalidParameterError(f"{name} has dtype {array.dtype}: pass real numbers, float64")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidParameterError(f"{name} contains NaN or infinity: pass finite numbers")
    return array


def members_of(value: Any, name: str, advice: str) -> tuple[Any, ...]:
    """Return the members of a sequence in their order, or refuse what is none."""
    try:
        members = None if isinstance(value, str | bytes | Mapping | AbstractSet) else iter(value)
    except TypeError:
        members = None
    if members is None:
        raise InvalidParameterError(
            f"{name} is of type {type(value).__name__}, which is no sequence: pass {advice}"
        )
    return tuple(members)


def _real_array(value: Any, name: str) -> NDArray[np.float64]:
    check_cells(value, name)
    try:
        array = np.asarray(value)
    except ValueError:
        raise InvalidParameterError(
            f"{name} is a ragged sequence: pass numbers in an array of one shape"
        ) from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > np.dtype(np.float64).itemsize:
        shown = repr(value) if array.ndim == 0 else f"an array of dtype {array.dtype}"
        raise InvalidParameterError(
            f"{name}={shown} is not numeric: {name} must hold real numbers; convert it to float64"
        )
    return array.astype(np.float64)
