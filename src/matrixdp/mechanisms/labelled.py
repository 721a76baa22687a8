"""Matrices that may be released: real numbers, and the labels that a release gets back.

Arrays of numpy and other libraries, nested lists, pandas and polars data frames. Frames are
recognised by the name of their type, because pandas and polars are not needed otherwise and are
slow to import.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.other_arrays import host_array, is_other_array, other_from_host
from matrixdp.parameters import check_cells, is_sparse

__all__ = ["MatrixFile", "MatrixLabels", "Relabel", "without_labels"]

Relabel = Callable[[NDArray[Any]], Any]
"""Puts labels on a matrix."""


@dataclass(frozen=True)
class MatrixLabels:
    """The names of columns and rows that a file has around its matrix.

    Attributes
    ----------
    columns, index : sequence of str, or None
        Of the columns and of the rows; None where they have no names.
    corner : str
        What the names of the rows are called.
    """

    columns: Sequence[str] | None = None
    index: Sequence[str] | None = None
    corner: str = ""


@dataclass(frozen=True, repr=False)
class MatrixFile:
    """A matrix and the labels that a file has around it.

    ``positions`` are those of its columns in the file, from 0, if some were chosen: for errors.
    """

    array: NDArray[Any]
    columns: Sequence[str] | None = None
    index: Sequence[str] | None = None
    corner: str = ""
    positions: Sequence[int] | None = None

    def column_in_file(self, column: int) -> int:
        """Return the number of a column as an editor counts it: from 1, labels included."""
        if self.positions is not None:
            return self.positions[column] + 1
        return column + (1 if self.index is None else 2)

    @property
    def labels(self) -> MatrixLabels | None:
        """The labels without the matrix, if there are any."""
        if self.columns is None and self.index is None:
            return None
        return MatrixLabels(self.columns, self.index, self.corner)

    def __array__(self, *arguments: Any, **options: Any) -> NDArray[Any]:
        """Return the matrix without its labels."""
        return np.asarray(self.array, *arguments, **options)

    def __repr__(self) -> str:
        """Show the shape alone."""
        return f"MatrixFile(shape={self.array.shape})"


def without_labels(matrix: Any) -> tuple[Any, Relabel | None]:
    """Return the numbers of a matrix for the gate, and how to put its labels on a result.

    Parameters
    ----------
    matrix : ndarray, list of lists, pandas or polars DataFrame, Tensor, or MatrixFile
        The matrix to release. Arrays of CuPy and JAX count as tensors.

    Raises
    ------
    InvalidParameterError
        If it is of another kind, sparse or masked, or a frame holds what numpy would round.
    """
    # Before the gate, whose message does not say that noise fills the zeros.
    if is_sparse(matrix):
        raise InvalidParameterError(
            "matrix is sparse, but its release is not: noise goes on the zeros too. Pass "
            "matrix.toarray() if that is what you mean"
        )
    library = type(matrix).__module__.partition(".")[0]
    if library == "pandas" and type(matrix).__name__ == "DataFrame":
        _refuse_sparse_columns(matrix)
        # Column by column, before pandas makes one type of all: it rounds integers among floats.
        for number in range(len(matrix.columns)):  # by number, because names may repeat
            check_cells(matrix.iloc[:, number], "matrix", bools=True)
        return matrix.to_numpy(), _into_pandas(matrix)
    if library == "polars" and type(matrix).__name__ == "DataFrame":
        _check_polars(matrix)
        return matrix.to_numpy(), _into_polars(matrix)
    if is_other_array(matrix):
        return host_array(matrix), other_from_host(matrix)
    if isinstance(matrix, MatrixFile):
        return matrix.array, lambda array: replace(matrix, array=array)
    masked = isinstance(matrix, np.ma.MaskedArray)
    if masked or not isinstance(matrix, np.ndarray | list | tuple):
        raise InvalidParameterError(
            f"matrix is a {type(matrix).__name__}: pass an array of numpy, torch, CuPy or JAX, or "
            "a pandas or polars data frame"
        )
    return matrix, None


def _into_pandas(frame: Any) -> Relabel:
    # Labels and type only: the frame with the private numbers is not kept.
    index, columns, make = frame.index, frame.columns, type(frame)
    return lambda array: make(array, index=index, columns=columns)


def _into_polars(frame: Any) -> Relabel:
    names, make = list(frame.columns), type(frame)
    return lambda array: make(array, schema=names)


def _check_polars(frame: Any) -> None:
    """Raise if a column is not numeric, or holds integers that float64 may round."""
    for name, kind in frame.schema.items():
        text = str(kind)
        # to_numpy would turn dates and decimals into floats, and 128-bit integers are rounded.
        if not (kind.is_integer() or kind.is_float() or text == "Boolean") or "128" in text:
            raise InvalidParameterError(
                f"matrix has a column of type {text}: cast it to Float64 (column "
                f"{frame.columns.index(name) + 1}, counted from 1)"
            )
        check_cells(frame[name].to_numpy(), "matrix", bools=True)


def _refuse_sparse_columns(frame: Any) -> None:
    if any(hasattr(kind, "fill_value") for kind in frame.dtypes):
        raise InvalidParameterError(
            "matrix has sparse columns, but its release is not sparse: pass "
            "frame.sparse.to_dense() if that is what you mean"
        )
