"""Non-negative least squares, solved by exchanging which entries are 0: of any size.

Notation: A is the matrix, x0 the unconstrained least-squares solution, x the non-negative one. The
unknown is ``x - x0``, which is as small as the noise, so that nothing cancels.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads import Strategy

__all__ = ["BoolArray", "Trial", "exchanged", "nearest_nonnegative", "searched_nonnegative"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Far fewer are usual. Without full column rank there may be no end.
_MOST_EXCHANGES = 100
# How many full exchanges in a row may fail to reduce the number of infeasible entries. After that
# single entries are exchanged, which is slow but ends. Kim and Park recommend 3.
_PATIENCE = 3
# A decomposition makes slopes 0 up to this multiple of their own rounding.
_LEFT = 16.0

_PROBES = 16
_MOST_STEPS = 5000
# The progress of the last so many steps estimates the error that is left; see Strakoš and Tichý.
_STEPS_SUMMED = 10
# All in units of the noise's standard deviation. Solutions are this far off, ...
_SOLVED = 1e-4
# ... a slope below this counts as 0, well above what solutions are off by, ...
_LEVEL = 1e-3
# ... and a result that is further from optimal than this is never returned.
_NEGLIGIBLE = 1e-2


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


def searched_nonnegative(strategy: Strategy, free: FloatArray, noise: float) -> FloatArray:
    """Return an ``x >= 0`` that minimises ``||A (x - x0)||``, with an error far below the noise.

    The exchanges are those of `exchanged`; conjugate gradients solve for the positive entries,
    using only the strategy's operators. They stop where ``||A (x - x*)||`` is about 1e-4 of the
    noise. No answer ``w x`` is then further from the best one than 1e-4 of its own standard error.

    Parameters
    ----------
    strategy : Strategy
        A.
    free : ndarray, shape (cells,)
        x0, the least-squares estimate.
    noise : float
        The standard deviation of each measurement.

    Raises
    ------
    CalibrationError
        If it did not converge, because the measurements have too many different weights.
    """
    search = _Search(strategy, free, noise)
    found = exchanged(free, search.attempt)
    if found is None or not search.is_optimal(*found):
        raise _not_converged()
    positive, trial = found
    return np.where(positive, free + trial.moved, 0.0)


class _Search:
    """A sequence of trials, each starting where the last one ended."""

    def __init__(self, strategy: Strategy, free: FloatArray, noise: float) -> None:
        self._strategy = strategy
        self._free = free
        self._noise = noise
        self._squares = _squared_columns(strategy)
        self._moved = np.zeros(len(free))
        self._image = strategy.apply(self._moved)
        self._positive: BoolArray | None = None

    def attempt(self, positive: BoolArray) -> Trial:
        """Return the best x for a guess.

        The slope is that of the residual that the conjugate gradients carry along. Computed from x
        itself, the residual at a row of great weight would be nothing but rounding.
        """
        last = self._positive
        changed = len(positive) if last is None else int(np.count_nonzero(positive ^ last))
        # Early guesses change much and need not be solved well.
        accuracy = _SOLVED * self._noise * max(changed, 1) ** 0.5
        start = np.where(positive, self._moved, -self._free)
        self._moved, self._image = _conjugate_gradients(
            self._strategy, start, positive, self._squares, accuracy
        )
        self._positive = positive
        slope = self._strategy.apply_transpose(self._image).ravel()
        slack = _LEVEL * self._noise * np.sqrt(self._squares)
        return Trial(self._moved, slope, np.zeros(len(positive)), np.asarray(slack))

    def is_optimal(self, positive: BoolArray, trial: Trial) -> bool:
        """Return whether positive entries have no slope, and the residual belongs to x."""
        slope = np.abs(trial.slope[positive]) / np.sqrt(self._squares[positive])
        lost = self._strategy.apply(trial.moved) - self._image
        least = max(float(np.max(slope, initial=0.0)), float(np.linalg.norm(lost)))
        return least <= _NEGLIGIBLE * self._noise


def _squared_columns(strategy: Strategy) -> FloatArray:
    """Return estimates of the columns' squared norms: means of ``(A^T z)^2`` over random signs z.

    They precondition the steps and give the noise of the slope; an error of a third does no harm.
    """
    # Seeded, so that a release always has the same estimate. No privacy rests on it.
    rng = np.random.default_rng(0)
    total = np.zeros(strategy.shape[1])
    for _ in range(_PROBES):
        signs = rng.choice([-1.0, 1.0], size=strategy.shape[0])
        total += np.square(strategy.apply_transpose(signs).ravel())
    return np.where(total > 0.0, total / _PROBES, 1.0)


def _conjugate_gradients(
    strategy: Strategy,
    moved: FloatArray,
    positive: BoolArray,
    scale: FloatArray,
    accuracy: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the m of least ``||A m||`` that differs only in the positive entries, and ``A m``.

    Every step lowers ``||A m||^2`` by a known amount, and ``||A (m - m*)||^2`` by the same. The sum
    over the last few steps is about as large as what is left.

    References
    ----------
    Björck, *Numerical methods for least squares problems* (1996), section 7.4 (CGLS); Strakoš and
    Tichý, *On error estimation in the conjugate gradient method*, ETNA 13 (2002).
    """
    image = strategy.apply(moved)
    slope = np.where(positive, strategy.apply_transpose(image).ravel(), 0.0)
    direction = -slope / scale
    steepness = -float(slope @ direction)
    lowered: list[float] = []
    for _ in range(_MOST_STEPS):
        change = strategy.apply(direction)
        size = float(np.sum(np.square(change)))
        if not steepness > 0.0 or not size > 0.0:
            return moved, image  # exactly solved, or no direction is left
        length = steepness / size
        moved = moved + length * direction
        image = image + length * change
        slope = np.where(positive, strategy.apply_transpose(image).ravel(), 0.0)
        lowered.append(length * steepness)
        if len(lowered) >= _STEPS_SUMMED and sum(lowered[-_STEPS_SUMMED:]) <= accuracy**2:
            return moved, image
        scaled = slope / scale
        former, steepness = steepness, float(slope @ scaled)
        direction = (steepness / former) * direction - scaled
    raise _not_converged()


def _not_converged() -> CalibrationError:
    return CalibrationError(
        "the non-negative estimate did not converge, because the strategy's measurements have too "
        "many different weights: use release.estimate"
    )
