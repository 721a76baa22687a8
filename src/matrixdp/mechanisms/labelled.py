"""What may be released: a matrix of real numbers, and the labels it goes back into.

numpy arrays and nested lists, pandas and polars data frames. Frames are recognised without
importing their library: whoever passes one has imported it already.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.matrix_files import MatrixFile

__all__ = ["LabelledMatrix"]

_LARGEST_EXACT_INTEGER = 2**53
_FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


@dataclass(frozen=True, repr=False)
class LabelledMatrix:
    """A float matrix, and how to give a matrix of its shape the labels that it came with.

    float32 stays float32. Integers and booleans become float64, and integers beyond 2**53, which
    float64 cannot hold exactly, are refused. The matrix is never shown.
    """

    array: NDArray[Any]
    relabel: Callable[[NDArray[Any]], Any]

    @classmethod
    def of(cls, matrix: Any) -> "LabelledMatrix":
        """Read a matrix, or say why it cannot be released.

        Raises
        ------
        InvalidParameterError
            If it is sparse, masked, complex or not numeric, or holds NaN or infinity.
        ShapeError
            If it is not two-dimensional, or empty.
        """
        if sparse.issparse(matrix):
            raise InvalidParameterError(
                "matrix is sparse, but its release is not: noise goes on the zeros too. Pass "
                "matrix.toarray() if that is what is meant"
            )
        library = type(matrix).__module__.partition(".")[0]
        if library == "pandas" and type(matrix).__name__ == "DataFrame":
            _refuse_sparse_columns(matrix)
            _check_columns(matrix[name] for name in matrix.columns.unique())
            return cls(_checked(matrix.to_numpy()), _into_pandas(matrix))
        if library == "polars" and type(matrix).__name__ == "DataFrame":
            _check_columns(matrix.iter_columns())
            return cls(_checked(matrix.to_numpy()), _into_polars(matrix))
        if isinstance(matrix, MatrixFile):
            return cls(_checked(matrix.array), lambda array: replace(matrix, array=array))
        masked = isinstance(matrix, np.ma.MaskedArray)
        if masked or not isinstance(matrix, np.ndarray | list | tuple):
            raise InvalidParameterError(
                f"matrix is a {type(matrix).__name__}: pass a numpy array, or a pandas or polars "
                "data frame"
            )
        if not isinstance(matrix, np.ndarray):
            _check_cells(matrix)
        return cls(_checked(matrix), lambda array: array)

    def __repr__(self) -> str:
        """Show the shape alone."""
        return f"LabelledMatrix(shape={self.array.shape}, dtype={self.array.dtype.name!r})"


def _into_pandas(frame: Any) -> Callable[[NDArray[Any]], Any]:
    index, columns, make = frame.index, frame.columns, type(frame)
    return lambda array: make(array, index=index, columns=columns)


def _into_polars(frame: Any) -> Callable[[NDArray[Any]], Any]:
    names, make = list(frame.columns), type(frame)
    return lambda array: make(array, schema=names)


def _checked(matrix: Any) -> NDArray[Any]:
    try:
        array = np.asarray(matrix)
    except ValueError:
        raise ShapeError("matrix is ragged: its rows must have one length") from None
    if array.ndim != 2 or array.size == 0:
        raise ShapeError(
            f"matrix has shape {array.shape}: it must have two axes and not be empty; reshape it"
        )
    if array.dtype.kind in "iub":
        array = _from_integers(array)
    if array.dtype.newbyteorder("=") not in _FLOATS:
        raise InvalidParameterError(
            f"matrix has dtype {array.dtype}: convert it to float64 or float32"
        )
    array = np.asarray(array, dtype=array.dtype.newbyteorder("="))
    if not np.isfinite(array).all():
        raise InvalidParameterError(
            "matrix holds NaN or infinity: fill or clip it by a rule that does not depend on data"
        )
    return array


def _from_integers(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind != "b":
        _check_integer(int(array.max()))
        _check_integer(int(array.min()))
    return array.astype(np.float64)


def _check_integer(number: int) -> None:
    if abs(number) > _LARGEST_EXACT_INTEGER:
        raise InvalidParameterError(
            "matrix holds integers beyond 2**53, which float64 cannot hold exactly, so that one "
            "record may move it by more than it should: scale them"
        )


def _check_columns(columns: Iterable[Any]) -> None:
    """Check the integers of a frame column by column, before columns are made one type."""
    for column in columns:
        values = np.asarray(column)
        if values.dtype.kind in "iu" and values.size:
            _from_integers(values)


def _check_cells(rows: Iterable[Any]) -> None:
    """Check the integers of nested lists, before numpy makes them one type."""
    for row in rows:
        for cell in row if isinstance(row, list | tuple) else (row,):
            if isinstance(cell, int | np.integer):
                _check_integer(int(cell))


def _refuse_sparse_columns(frame: Any) -> None:
    if any(hasattr(kind, "fill_value") for kind in frame.dtypes):
        raise InvalidParameterError(
            "matrix has sparse columns, but its release is not sparse: pass "
            "frame.sparse.to_dense() if that is what is meant"
        )
