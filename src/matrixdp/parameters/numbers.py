"""One gate for scalars: real numbers in a domain, integers, sequences of them, choices.

Errors show the value, because parameters are public.
"""

import enum
import math
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters.arrays import plain_array

__all__ = [
    "DELTA",
    "EPSILON",
    "MU",
    "Domain",
    "broadcast_together",
    "checked_choice",
    "checked_integer",
    "checked_integers",
    "members_of",
    "positive_integer",
    "positive_number",
    "proper_fraction",
    "real_number",
]

_NUMBERS = (float, int, np.floating, np.integer)
# A bool is an int and a long double is floating, but neither means what a float64 means.
_LOOKALIKES = (bool, np.longdouble)


@dataclass(frozen=True, slots=True)
class Domain:
    """A closed interval for a named parameter, and advice for values outside it."""

    name: str
    smallest: float
    largest: float
    advice: str

    def number(self, value: Any) -> float:
        """Return the value as a float of this domain, or raise if it is outside."""
        number = real_number(value, self.name)
        if not self.smallest <= number <= self.largest:
            raise self._outside(number, "")
        return number

    def numbers(self, value: Any) -> float | NDArray[np.float64]:
        """Return a number as a float and an array as float64, or raise if it is outside."""
        # Anything else is a scalar, and gets the message for one.
        if not (isinstance(value, list | tuple | range) or hasattr(value, "__array__")):
            return self.number(value)
        # NaN and infinity are left to the comparison below, which says where they are.
        array = plain_array(value, self.name)
        if array.ndim == 0:
            return self.number(array.item())
        # Negated, so that NaN counts as outside.
        outside = ~((array >= self.smallest) & (array <= self.largest))
        if outside.any():
            position = tuple(int(index) for index in np.argwhere(outside)[0])
            raise self._outside(float(array[position]), f" at index {position}")
        return array

    def _outside(self, number: float, where: str) -> InvalidParameterError:
        return InvalidParameterError(
            f"{self.name}={number!r}{where} is outside its domain: it must be a finite number from "
            f"{self.smallest!r} to {self.largest!r}; {self.advice}"
        )


# Within these bounds the tests compare the privacy curve with ball arithmetic.
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
    """Return a finite or infinite real number as a float, or raise if it is not one."""
    if isinstance(value, _NUMBERS) and not isinstance(value, _LOOKALIKES):
        number = _as_float(value, name)
    else:
        raise InvalidParameterError(
            f"{name}={value!r} is of type {type(value).__name__}: {name} must be a real number; "
            "pass a float or an int"
        )
    # Infinity is left to the domain of the parameter, which knows its limits.
    if math.isnan(number):
        raise InvalidParameterError(f"{name}={number!r} is not a number: pass a finite value")
    return number


def positive_number(value: Any, name: str) -> float:
    """Return a positive finite number as a float, or raise if it is not one."""
    number = real_number(value, name)
    if not 0.0 < number < math.inf:
        raise InvalidParameterError(
            f"{name}={number!r} is outside its domain: it must be positive and finite"
        )
    return number


def proper_fraction(value: Any, name: str) -> float:
    """Return a number above 0 and below 1 as a float, or raise if it is not one."""
    number = real_number(value, name)
    if not 0.0 < number < 1.0:
        raise InvalidParameterError(f"{name}={number!r} must be above 0 and below 1")
    return number


def positive_integer(value: Any, name: str) -> int:
    """Return an integer from 1 to 2**63 as an int, or raise if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not value >= 1:
        raise InvalidParameterError(f"{name}={value!r} must be an integer of at least 1")
    if not value <= 2**63:
        raise InvalidParameterError(f"{name} is an integer beyond 2**63: pass a smaller one")
    return int(value)


def checked_integer(value: Any, name: str) -> int:
    """Return an integer of Python or numpy as a Python integer: not 2.0, "2" or True.

    Raises
    ------
    InvalidParameterError
        If it is a boolean or of any other kind.

    Examples
    --------
    >>> checked_integer(np.int64(3), "threads")
    3
    """
    try:
        if not isinstance(value, bool | np.bool_):
            return index(value)
    except TypeError:
        pass
    raise InvalidParameterError(f"{name} must be an integer, got {name}={value!r}; pass an int")


def checked_integers(values: Any, name: str) -> tuple[int, ...]:
    """Return a sequence of integers as a tuple of Python integers.

    Raises
    ------
    InvalidParameterError
        If it is not a sequence, or holds anything else.

    Examples
    --------
    >>> checked_integers([2, np.int64(3)], "shape")
    (2, 3)
    """
    try:
        numbers = tuple(values)
    except TypeError:
        raise InvalidParameterError(
            f"{name} must be a tuple of integers, got {name}={values!r}; pass one per axis"
        ) from None
    return tuple(checked_integer(number, name) for number in numbers)


def broadcast_together(
    first: float | NDArray[np.float64],
    second: float | NDArray[np.float64],
    names: tuple[str, str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both arguments as arrays of their common shape, or raise if they have none."""
    try:
        pair = np.broadcast_arrays(first, second)
    except ValueError:
        raise ShapeError(
            f"{names[0]} of shape {np.shape(first)} and {names[1]} of shape {np.shape(second)} do "
            "not broadcast together: make their shapes equal, or 1 where they differ"
        ) from None
    return pair[0], pair[1]


def members_of(value: Any, name: str, advice: str) -> tuple[Any, ...]:
    """Return the members of a sequence in their order, or raise if it is not one."""
    try:
        # Text, mappings and sets can be iterated too, but not in an order that means anything here.
        members = None if isinstance(value, str | bytes | Mapping | AbstractSet) else iter(value)
    except TypeError:
        members = None
    if members is None:
        raise InvalidParameterError(
            f"{name} is of type {type(value).__name__}, which is not a sequence: pass {advice}"
        )
    return tuple(members)


def _as_float(value: Any, name: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    # An integer that float rounds could be rounded to the wrong side.
    if isinstance(value, int) and (number == math.inf or int(number) != value):
        raise InvalidParameterError(
            f"{name} is an integer of {value.bit_length()} bits that no float holds exactly: pass "
            "a float, rounded to the private side"
        )
    return number


E = TypeVar("E", bound=enum.Enum)


def checked_choice(value: object, kind: type[E], name: str) -> E:
    """Return the member of an enumeration that a value is or names.

    Raises
    ------
    InvalidParameterError
        If it is neither; the message lists the choices.

    Examples
    --------
    >>> from matrixdp.privacy import Accountant
    >>> checked_choice("rdp", Accountant, "accountant")
    <Accountant.RDP: 'rdp'>
    """
    if isinstance(value, kind):
        return value
    # Compared with strings alone, of which every choice has one.
    for member in kind:
        if isinstance(value, str) and value == member.value:
            return member
    choices = ", ".join(repr(member.value) for member in kind)
    raise InvalidParameterError(
        f"{name}={value!r} is not one of {choices}: pass one of them, or {kind.__name__}."
        f"{next(iter(kind)).name} and so on"
    )
