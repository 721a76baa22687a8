"""Arguments that must be whole numbers: neither 2.0, nor "2", nor True passes for one."""

from operator import index
from typing import Any

import numpy as np

from matrixdp.errors import InvalidParameterError

__all__ = ["checked_integer"]


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
