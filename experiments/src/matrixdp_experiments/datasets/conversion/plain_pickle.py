"""Pickles of Python 2 that hold plain arrays, sparse matrices and lists, and nothing else.

A pickle is a program that may call any function. This reader knows a handful of harmless ones and
raises on every other name, so that a file from anywhere can be opened.
"""

import io
import pickle
from typing import Any

import numpy as np

from matrixdp.errors import FileFormatError

__all__ = ["SparseParts", "read_plain_pickle"]


class SparseParts:
    """The parts of a sparse matrix in a pickle, instead of the matrix.

    Attributes
    ----------
    parts : dict
        The arrays ``data``, ``indices`` and ``indptr``, and the shape.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what the matrix was made of."""
        self.parts = dict(state)


def read_plain_pickle(content: bytes, name: str) -> Any:
    """Return the one value of a pickle.

    Parameters
    ----------
    content : bytes
        The pickle.
    name : str
        Of the file, for messages.

    Returns
    -------
    ndarray, SparseParts, or dict of lists
        Whatever it is.

    Raises
    ------
    FileFormatError
        If the pickle is damaged, or names anything but arrays, matrices and containers.
    """
    try:
        # Python 2 wrote the bytes of arrays as text, which latin1 turns back one to one.
        return _PlainUnpickler(io.BytesIO(content), encoding="latin1").load()
    except FileFormatError as error:
        raise FileFormatError(f"{name} {error}") from None
    except Exception as error:  # a damaged pickle raises anything
        raise FileFormatError(f"{name} is not a whole pickle of plain arrays") from error


class _PlainUnpickler(pickle.Unpickler):
    """Knows the names that the files of Planetoid use, in the spelling of Python 2."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for, or raise if it is not on the list."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise FileFormatError(
                f"names {module}.{name}, which is neither an array nor a container: not opened"
            ) from None


def _number_type(code: str, *_: int) -> np.dtype[Any]:
    # Not of objects, whose arrays could hold anything.
    if code[:1] not in {"f", "i", "u", "b"}:
        raise FileFormatError("holds an array of something else than numbers")
    # A copy, since the pickle sets its byte order, and types are shared otherwise.
    return np.dtype(code, copy=True)


def _new(kind: type, *_: Any) -> Any:
    if kind is not SparseParts:
        raise FileFormatError("makes an object that is not a sparse matrix")
    return SparseParts()


def _dictionary(*_: Any) -> dict[Any, Any]:
    return {}


_KNOWN = {
    # The function that numpy's own arrays name in their pickles, wherever this version keeps it.
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _number_type,
    ("scipy.sparse.csr", "csr_matrix"): SparseParts,
    ("copy_reg", "_reconstructor"): _new,
    ("__builtin__", "object"): object,
    ("__builtin__", "list"): list,
    ("collections", "defaultdict"): _dictionary,
}
