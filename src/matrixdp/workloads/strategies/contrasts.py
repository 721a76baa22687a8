r"""Contrasts of the cells of an attribute, in whole numbers: the rows of Helmert's matrix.

Row j = 1 .. n - 1 is the sum of the first j cells less j times the next one. The rows are
orthogonal to each other and to the total, and row j has the squared norm ``j (j + 1)``. So the
contrasts of whole counts are whole, and the rows divided by their norms are an orthonormal basis H
of all contrasts: ``H^T H = I - J / n``, J of ones.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.workloads.operator import FloatArray

__all__ = ["contrast_scales", "spread_contrasts", "whole_contrasts"]


def whole_contrasts(table: NDArray[Any], axes: Iterable[int]) -> NDArray[Any]:
    """Return Helmert's rows applied along some axes; n cells become n - 1 contrasts.

    Whole numbers stay whole. No number on the way is larger than the sum of the absolute values in
    the table times the product of the ``n - 1``.

    Examples
    --------
    >>> whole_contrasts(np.array([5, 3, 1]), [0]).tolist()
    [2, 6]
    """
    for axis in axes:
        cells = np.moveaxis(table, axis, 0)
        # 1, 2, .. along the first axis, in the type of the table so that integers stay integers.
        counted = np.arange(1, len(cells), dtype=table.dtype).reshape(-1, *[1] * (cells.ndim - 1))
        contrasts = np.cumsum(cells[:-1], axis=0) - counted * cells[1:]
        table = np.moveaxis(contrasts, 0, axis)
    return table


def contrast_scales(cells: int) -> FloatArray:
    """Return ``(j (j + 1))^(-1/2)`` for j = 1 .. n - 1, each off by at most 2 units of 2**-53."""
    rows = np.arange(1.0, cells)
    return np.asarray(1.0 / np.sqrt(rows * (rows + 1.0)))


def spread_contrasts(contrasts: FloatArray, axes: Iterable[int]) -> FloatArray:
    """Return ``H^T`` applied along some axes: n - 1 normalised contrasts become n cells.

    Examples
    --------
    >>> spread_contrasts(np.array([2.0, 6.0]) * contrast_scales(3), [0]).round(12).tolist()
    [2.0, 0.0, -2.0]
    """
    for axis in axes:
        rows = np.moveaxis(contrasts, axis, 0)
        ones = [1] * (rows.ndim - 1)
        scaled = rows * contrast_scales(len(rows) + 1).reshape(-1, *ones)
        cells = np.zeros((len(rows) + 1, *rows.shape[1:]))
        # Cell i is in the sums of the rows j > i, and is the one that row i subtracts i times.
        cells[:-1] = np.cumsum(scaled[::-1], axis=0)[::-1]
        cells[1:] -= np.arange(1.0, len(rows) + 1.0).reshape(-1, *ones) * scaled
        contrasts = np.moveaxis(cells, 0, axis)
    return contrasts
