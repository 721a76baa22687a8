"""Arguments that must be whole numbers: neither 2.0, nor "2", nor True passes for one."""

from operator import index
from typing import Any

import numpy as np

from matrixdp.errors import InvalidParameterError

__all__ = ["checked_integer", "checked_integers"]


def checked_integer(value: Any, name: str) -> int:
    """Return the argument ``name`` as a Python integer if it is one, of Python or of numpy.

    Raises
    ------
    InvalidParameterError
        If it is a truth value or of any other kind.

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
    """Return the argument ``name`` as a tuple of Python integers if it is a sequence of integers.

    Raises
    ------
    InvalidParameterError
        If it is no sequence, or holds anything else.

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
