"""One gate for arrays: what passed `real_array` need not be checked again.

Errors never show an entry, because an array may be the private data.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError

__all__ = [
    "LARGEST_EXACT_INTEGER",
    "Limit",
    "all_within",
    "check_cells",
    "check_in_memory",
    "check_within",
    "checked_matrix",
    "checked_symmetric",
    "finite_array",
    "integer_array",
    "is_sparse",
    "outside_limit",
    "plain_array",
    "positive_vector",
    "real_array",
    "shaped_array",
]

LARGEST_EXACT_INTEGER = 2**53
"""The largest of the integers that float64 holds without a gap."""

_LARGEST_FLOAT = sys.float_info.max
_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)
# Half a megabyte of float64, which stays in the cache between the two passes over a piece.
_READ_TOGETHER = 1 << 16
# For longer products OpenBLAS wakes its threads, which then stay in the way of those that draw.
_MULTIPLIED_BY_ONE_THREAD = 1 << 12
# Libraries of arrays that are stored or computed in parts.
_IN_PARTS = ("dask", "h5py", "zarr")
_AXES = {1: "one axis", 2: "two axes"}


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The largest absolute values that an array may hold, and the rule that they follow from.

    ``largest`` is one number, or an array that broadcasts to the values. ``rule`` completes the
    sentence "the array must be finite and ..."
    """

    largest: float | NDArray[np.float64]
    rule: str


def real_array(
    value: Any,
    name: str,
    *,
    axes: int | None = None,
    booleans: bool = False,
    keep_single: bool = False,
) -> NDArray[Any]:
    """Return finite real numbers as a plain numpy array: the gate that every array goes through.

    What passed it need not be checked again. It is not copied if it is a plain array already.

    Parameters
    ----------
    value : array, nested lists or tuples, or anything with ``__array__``
        Masked, sparse, ragged, complex, object and long double arrays are refused, and integers
        beyond 2**53.
    name : str
        The argument's name, for errors.
    axes : int, optional
        How many axes it must have, and then it must not be empty either.
    booleans : bool, optional
        Whether booleans count as 0 and 1.
    keep_single : bool, optional
        Whether float32 stays float32; everything else becomes float64.

    Raises
    ------
    InvalidParameterError
        If it does not hold such numbers. The message never shows one.
    ShapeError
        If it is ragged, has another number of axes, or is empty.
    """
    array = shaped_array(value, name, axes=axes, booleans=booleans, keep_single=keep_single)
    check_within(array, name)
    return array


def shaped_array(
    value: Any,
    name: str,
    *,
    axes: int | None,
    booleans: bool = False,
    keep_single: bool = False,
) -> NDArray[Any]:
    """Return the array of `real_array` before its numbers are read: for those who have a limit."""
    array = plain_array(value, name, booleans=booleans, keep_single=keep_single)
    if axes is not None and (array.ndim != axes or array.size == 0):
        raise ShapeError(
            f"{name} has shape {array.shape}: it must be not empty and have {_AXES[axes]}; reshape "
            "it"
        )
    return array


def check_within(array: NDArray[Any], name: str, limit: Limit | None = None) -> None:
    """Raise unless all numbers are within a limit; without one, unless all are finite."""
    # One pass answers both questions: a limit is finite, so whatever is within it is finite too.
    if not all_within(array, _LARGEST_FLOAT if limit is None else limit.largest):
        raise outside_limit(name, limit)


def all_within(array: NDArray[Any], largest: float | NDArray[np.float64]) -> bool:
    """Return whether all numbers are at most so large in absolute value; NaN is not."""
    if 0 < array.size <= _READ_TOGETHER:
        if _surely_within(array, largest):
            return True
        with np.errstate(all="ignore"):  # a signalling NaN is treated like any other
            return _piece_within(array, largest)
    # Contiguous numbers with one limit are read as one row, otherwise row by row; either way in
    # pieces that stay in the cache, so that nothing as large as the array is allocated.
    one_limit = isinstance(largest, float)
    flat = array.reshape(-1) if one_limit and array.flags.c_contiguous else array
    limits = None if one_limit else np.broadcast_to(largest, flat.shape)
    together = max(1, _READ_TOGETHER * len(flat) // flat.size) if flat.size else 1
    with np.errstate(all="ignore"):
        for start in range(0, len(flat) if flat.size else 0, together):
            rows = slice(start, start + together)
            if not _piece_within(flat[rows], largest if limits is None else limits[rows]):
                return False
    return True


def _surely_within(array: NDArray[Any], largest: float | NDArray[np.float64]) -> bool:
    """Return True if the sum of all squares shows that numbers are within one limit.

    No number is larger than the root of that sum. For a small array one product takes a third of
    the time of the largest and the smallest number; if it overflows or is NaN, it shows nothing.
    """
    if array.size > _MULTIPLIED_BY_ONE_THREAD:
        return False
    # The squares of numbers beyond a tiny limit could underflow to nothing.
    if not (isinstance(largest, float) and largest >= 2.0**-40 and array.flags.c_contiguous):
        return False
    # No rounding takes a sum of squares below its largest one, and half the limit leaves room for
    # the rounding of that square and of the root.
    return math.sqrt(np.vdot(array, array)) <= 0.5 * largest


def _piece_within(piece: NDArray[Any], largest: float | NDArray[np.float64]) -> bool:
    if isinstance(largest, float):
        # As Python floats: a float32 compared with the largest float64 would see infinity.
        return float(piece.max()) <= largest and float(piece.min()) >= -largest
    return bool((np.abs(piece) <= largest).all())


def outside_limit(name: str, limit: Limit | None) -> InvalidParameterError:
    """Return the error about an array that holds numbers outside a limit, without the numbers."""
    rule = "" if limit is None else f" and {limit.rule}"
    larger = "" if limit is None else ", or a larger number"
    return InvalidParameterError(
        f"{name} must be finite{rule}: it contains NaN or infinity{larger}; pass finite numbers, "
        "filled, clipped or rescaled by a rule that does not depend on the data"
    )


def finite_array(value: Any, name: str) -> NDArray[np.float64]:
    """Return finite real numbers of any shape as a new float64 array; booleans are 0 and 1."""
    return np.array(real_array(value, name, booleans=True))


def checked_matrix(matrix: Any, name: str) -> NDArray[np.float64]:
    """Return a finite, non-empty matrix as a read-only float64 copy."""
    # Read-only, because values that were proven for a matrix must stay true of it.
    array = np.array(real_array(matrix, name, axes=2))
    array.setflags(write=False)
    return array


def checked_symmetric(matrix: Any, name: str) -> NDArray[np.float64]:
    """Return a finite, exactly symmetric, non-empty matrix as a read-only float64 copy."""
    array = checked_matrix(matrix, name)
    if array.shape[0] != array.shape[1]:
        raise ShapeError(f"{name} has shape {array.shape}: it must be square")
    # Not averaged here: only the caller knows whether the asymmetry is rounding or a mistake.
    if not np.array_equal(array, array.T):
        raise InvalidParameterError(
            f"{name} is not symmetric: its largest asymmetry is "
            f"{np.max(np.abs(array - array.T)):.3g}; pass (A + A.T) / 2 if that is what you mean"
        )
    return array


def positive_vector(vector: Any, name: str) -> NDArray[np.float64]:
    """Return finite positive numbers as a read-only float64 vector."""
    # A copy, and read-only for the reason given above.
    array = np.array(real_array(vector, name, axes=1))
    if not bool(np.all(array > 0.0)):
        index = int(np.argmin(array))
        raise InvalidParameterError(f"{name}[{index}]={array[index].item()!r} must be positive")
    array.setflags(write=False)
    return array


def integer_array(value: Any, name: str) -> NDArray[Any]:
    """Return integers of any shape as an array of integers; floats are refused, even 2.0."""
    array = _as_array(value, name, booleans=False)
    # numpy makes floats of an empty list.
    if array.dtype.kind not in ("iu" if array.size else "iuf"):
        raise InvalidParameterError(f"{name} has dtype {_shown_type(array)}: pass integers")
    return array


def check_cells(value: Any, name: str, *, bools: bool = False) -> None:
    """Raise if a value holds something that numpy would silently turn into other numbers.

    That is: integers beyond 2**53 (rounded), masked rows (unmasked), sparse matrices (made objects)
    and, unless ``bools`` allows them, booleans (made 0 and 1). Nested lists, tuples and ranges
    are searched cell by cell, since numpy would find one type for all; an array has one already.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidParameterError(f"{name} is a masked array: fill its gaps, then pass its data")
    if isinstance(value, bool | np.bool_):
        if not bools:
            raise InvalidParameterError(f"{name} holds booleans: pass numbers")
    elif isinstance(value, int | np.integer):
        _check_exact(int(value), name)
    elif isinstance(value, list | tuple | range):
        for part in value:
            check_cells(part, name, bools=bools)
    elif is_sparse(value):
        raise InvalidParameterError(f"{name} is sparse: pass its .toarray()")
    elif hasattr(value, "__array__"):
        check_in_memory(value, name)
        _check_array_cells(np.asarray(value), name, bools=bools)


def check_in_memory(value: Any, name: str) -> None:
    """Raise for an array that is stored or computed in parts: it would be loaded whole."""
    library = type(value).__module__.partition(".")[0]
    if library in _IN_PARTS:
        raise InvalidParameterError(
            f"{name} is an array of {library}, which would be loaded whole: queries read it in "
            f"parts; here pass numpy.asarray({name}) if there is memory for it"
        )


def is_sparse(value: object) -> bool:
    """Return whether this is a sparse matrix or array of scipy."""
    # Whoever has one has imported scipy.sparse, which takes longer than importing numpy.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(value))


def _check_array_cells(array: NDArray[Any], name: str, *, bools: bool) -> None:
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


def plain_array(
    value: Any, name: str, *, booleans: bool = False, keep_single: bool = False
) -> NDArray[Any]:
    """Return real numbers as float64, or as float32 where that is kept; not necessarily finite."""
    # Most matrices are plain already, and there is nothing in them to convert.
    if type(value) is np.ndarray and (
        value.dtype is _DOUBLE or (keep_single and value.dtype is _SINGLE)
    ):
        return value
    array = _as_array(value, name, booleans=booleans)
    kinds = "iufb" if booleans else "iuf"
    # Where float32 stays float32, float16 is refused: the caller should say which type is meant.
    sizes = (4, 8) if keep_single and array.dtype.kind == "f" else (1, 2, 4, 8)
    if array.dtype.kind not in kinds or array.dtype.itemsize not in sizes:
        wanted = "float64 or float32" if keep_single else "float64"
        raise InvalidParameterError(
            f"{name} has dtype {_shown_type(array)}: pass real numbers, converted to {wanted}"
        )
    single = keep_single and array.dtype.kind == "f" and array.dtype.itemsize == 4
    if array.dtype == (np.float32 if single else np.float64):
        return array
    with np.errstate(all="ignore"):  # a signalling NaN is reported by the check that follows
        return array.astype(np.float32 if single else np.float64, copy=False)


def _shown_type(array: NDArray[Any]) -> str:
    """Return the type of an array for messages; that of text without the length of the longest."""
    # numpy's names of text types, such as <U6, tell how long the longest entry is.
    return {"U": "str", "S": "bytes"}.get(array.dtype.kind, str(array.dtype))


def _as_array(value: Any, name: str, *, booleans: bool) -> NDArray[Any]:
    """Return a value as a plain array in which nothing was rounded, unmasked or converted."""
    # An object with __array__ is asked once: it might answer something else the second time.
    if hasattr(value, "__array__") and not isinstance(value, np.ma.MaskedArray):
        check_in_memory(value, name)
        value = np.asarray(value)
    check_cells(value, name, bools=booleans)
    try:
        return np.asarray(value)
    except ValueError:
        raise ShapeError(
            f"{name} is ragged: its rows have different lengths; pass rows of one length"
        ) from None
