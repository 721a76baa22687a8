"""Iterators of blocks of records: what they yield must be blocks, in memory, and not rows."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters.arrays import check_in_memory, is_sparse

__all__ = ["iterated_blocks"]

_ROWS = (list, tuple, np.ndarray)


def iterated_blocks(data: Iterable[Any]) -> Iterator[Any]:
    """Yield what an iterator yields, which must be blocks of rows.

    Raises
    ------
    InvalidParameterError
        If it yields rows, each number of which could count as a record of one column; or arrays
        that would be loaded whole; or if it is no iterator of blocks but a sparse matrix.
    """
    if is_sparse(data):
        raise InvalidParameterError("data is sparse: pass blocks of its rows, each as .toarray()")
    for block in data:
        if isinstance(block, tuple) and not all(isinstance(row, _ROWS) for row in block):
            raise InvalidParameterError(
                "data is an iterator of tuples, which are rows: pass blocks of rows, or list(data)"
            )
        check_in_memory(block, "data")
        yield block
