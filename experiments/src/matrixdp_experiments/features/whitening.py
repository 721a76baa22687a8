"""Principal directions of public rows, scaled to equal variance."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from matrixdp.errors import ShapeError
from matrixdp.parameters import positive_integer

__all__ = ["Whitening"]

_SPARE, _ROUNDS = 20, 3  # of the search for directions
_FLOOR = 0.01  # added to variances, over the largest of them


@dataclass(frozen=True, eq=False)
class Whitening:
    """An affine map to fewer columns, followed by scaling each row to norm 1.

    Attributes
    ----------
    centre : ndarray, shape (columns,)
        What is subtracted from every row.
    directions : ndarray, shape (columns, kept)
        What rows are multiplied by.
    """

    centre: NDArray[np.float32]
    directions: NDArray[np.float32]

    @classmethod
    def of(cls, rows: NDArray[np.float32], kept: int) -> Self:
        """Return the map to the first principal directions of rows, which must be public.

        A direction v with variance s, where t is the largest variance, is divided by
        ``sqrt(s + t / 100)``: noise directions are not blown up. Directions come from randomised
        subspace iteration (Halko, Martinsson and Tropp, *Finding structure with randomness*, 2011,
        Algorithm 4.4) with a fixed seed.

        Parameters
        ----------
        rows : ndarray, shape (rows, columns)
            Public.
        kept : int
            How many columns the result has.

        Raises
        ------
        InvalidParameterError, ShapeError
            If there are fewer rows or columns than are to be kept.
        """
        kept = positive_integer(kept, "kept")
        if rows.ndim != 2 or min(rows.shape) < kept:
            raise ShapeError(f"rows have shape {rows.shape}: at least {kept} rows and columns")
        centre = rows.mean(axis=0)
        centred = rows - centre
        start = np.random.default_rng(0).standard_normal(
            (rows.shape[1], min(kept + _SPARE, *rows.shape)), dtype=np.float32
        )
        basis = linalg.qr(centred @ start, mode="economic")[0]
        for _ in range(_ROUNDS):
            basis = linalg.qr(centred.T @ basis, mode="economic")[0]
            basis = linalg.qr(centred @ basis, mode="economic")[0]
        _, lengths, directions = linalg.svd(basis.T @ centred, full_matrices=False)
        variances = lengths[:kept] ** 2 / len(rows)
        scales = 1.0 / np.sqrt(variances + _FLOOR * variances[0])
        return cls(centre, np.asarray(directions[:kept].T * scales, dtype=np.float32))

    def __call__(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows of norm 1, each from one row; a row at the centre becomes 0."""
        moved = (rows - self.centre) @ self.directions
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        return np.asarray(moved / np.where(lengths > 0.0, lengths, 1.0))
