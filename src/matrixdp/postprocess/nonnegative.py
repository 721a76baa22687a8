"""Non-negative least squares, solved by exchanging which entries are 0.

Notation: A is the matrix, x0 the unconstrained least-squares solution, x the non-negative one. The
unknown is ``x - x0``, which is as small as the noise, so that nothing cancels.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["BoolArray", "Trial", "exchanged", "nearest_nonnegative"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Far fewer are usual. Without full column rank there may be no end.
_MOST_EXCHANGES = 100
# How many full exchanges in a row may fail to reduce the number of infeasible entries. After that
# single entries are exchanged, which is slow but ends. Kim and Park recommend 3.
_PATIENCE = 3
# A decomposition makes slopes 0 up to this multiple of their own rounding.
_LEFT = 16.0


class Trial(NamedTuple):
    """The best x for one guess of which entries are positive; the others are 0.

    Attributes
    ----------
    moved : ndarray
        ``x - x0``.
    slope : ndarray
        ``A^T A (x - x0)``.
    blur : ndarray
        How far below 0 an entry of x may be by rounding alone.
    slack : ndarray
        How far below 0 an entry of the slope may be by rounding alone.
    """

    moved: FloatArray
    slope: FloatArray
    blur: FloatArray
    slack: FloatArray


def nearest_nonnegative(matrix: FloatArray, free: FloatArray) -> FloatArray | None:
    """Return the ``x >= 0`` that minimises ``||A (x - x0)||``, or None if it was not found.

    With x0 the least-squares solution for measurements y this is the x that minimises
    ``||A x - y||``. What is returned has been checked to be optimal, up to the rounding of the
    slope.

    Parameters
    ----------
    matrix : ndarray, shape (measurements, cells)
        A.
    free : ndarray, shape (cells,)
        x0, the least-squares solution.
    """
    rows = _reduced(matrix)
    found = exchanged(free, lambda positive: _solved(rows, free, positive))
    if found is None:
        return None
    positive, trial = found
    # The exchanges only look at signs. At an optimum the slope of positive entries is 0, too.
    if not bool(np.all(np.abs(trial.slope[positive]) <= _LEFT * trial.slack[positive])):
        return None
    # Entries may be below 0 by their blur.
    return np.where(positive, np.maximum(free + trial.moved, 0.0), 0.0)


def exchanged(
    free: FloatArray, attempt: Callable[[BoolArray], Trial]
) -> tuple[BoolArray, Trial] | None:
    """Return which entries of the nearest ``x >= 0`` are positive, and x; None if it did not end.

    x and the slope ``g = A^T A (x - x0)`` are optimal if ``x >= 0``, ``g >= 0`` and one of the two
    is 0 in every entry. Block principal pivoting guesses which one, solves for the other, and
    exchanges the entries that have the wrong sign. Where that does not help, it exchanges only the
    last of them. With full column rank this ends; without, it may not.

    References
    ----------
    Kim and Park, *Fast nonnegative matrix factorization: an active-set-like method and
    comparisons*, SIAM J. Sci. Comput. 33 (2011), section 3.
    """
    positive = free > 0.0  # most entries of x0 have the right sign already
    fewest, patience = len(free) + 1, _PATIENCE
    for _ in range(_MOST_EXCHANGES):
        trial = attempt(positive)
        below = free + trial.moved < -trial.blur
        wrong = np.where(positive, below, trial.slope < -trial.slack)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return positive, trial
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            wrong = np.arange(len(free)) == np.flatnonzero(wrong)[-1]
        positive = positive ^ wrong
    return None


def _solved(rows: FloatArray, free: FloatArray, positive: BoolArray) -> Trial:
    """Return a trial by a decomposition of the rows."""
    moved = _moved(rows, free, positive)
    slope, rounding = _slope(rows, moved)
    blur = 2.0**-40 * (np.max(np.abs(moved)) + np.abs(free))
    return Trial(moved, slope, np.asarray(blur), rounding)


def _reduced(matrix: FloatArray) -> FloatArray:
    """Return rows with the same Gram matrix, the heaviest first, and no more of them than columns.

    Householder reflections keep light rows accurate if they are below heavy ones, not above them.
    """
    order = np.argsort(-np.max(np.abs(matrix), axis=1), kind="stable")
    if matrix.shape[0] <= matrix.shape[1]:
        return np.asarray(matrix[order])
    return np.asarray(
        scipy.linalg.qr(matrix[order], mode="r", check_finite=False)[0][: matrix.shape[1]]
    )


def _moved(rows: FloatArray, free: FloatArray, positive: BoolArray) -> FloatArray:
    """Return ``x - x0`` for the best x whose other entries are 0."""
    moved = np.where(positive, 0.0, -free)
    if positive.any() and not positive.all():
        target = -(rows[:, ~positive] @ moved[~positive])
        part = rows[:, positive]
        # Pivoted QR: the part may have less than full rank.
        moved[positive] = scipy.linalg.lstsq(
            part, target, lapack_driver="gelsy", check_finite=False
        )[0]
    return moved


def _slope(rows: FloatArray, moved: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``A^T A (x - x0)``, and how far from 0 it may be by rounding alone."""
    sizes = np.abs(rows)
    rounding = 16 * UNIT_ROUNDOFF * (sizes.T @ (sizes @ np.abs(moved)))
    return np.asarray(rows.T @ (rows @ moved)), np.asarray(rounding)
