"""Estimated histograms that look like histograms: non-negative, integer.

This is post-processing and costs no budget. It removes impossible numbers, and in exchange the
estimate is no longer unbiased.
"""

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.parameters import LARGEST_EXACT_INTEGER, finite_array
from matrixdp.postprocess.nonnegative import nearest_nonnegative, searched_nonnegative
from matrixdp.workloads.operator import LARGEST_WRITTEN

__all__ = ["integer_counts", "nonnegative_estimate"]

FloatArray = NDArray[np.float64]

# The exact solution takes dense decompositions, of cubic cost.
_MOST_CELLS_SOLVED = 2048


def nonnegative_estimate(release: WorkloadRelease) -> FloatArray:
    """Return the histogram of non-negative counts that is closest to the measurements.

    It minimises ``||A x - y||`` over ``x >= 0``: the most likely such histogram. Apply the workload
    to it for consistent answers. Up to 2,048 cells it is solved exactly. Above that, or if the
    exact method does not end, it is found with an error far below the noise.

    Parameters
    ----------
    release : WorkloadRelease
        From `MatrixMechanism.release`.

    Raises
    ------
    CalibrationError
        If it did not converge, which only a strategy with very many different weights can cause.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> from matrixdp.workloads import Prefix
    >>> budget = mdp.Budget(1.0, 1e-5)
    >>> release = mdp.MatrixMechanism(Prefix(8), budget, neighbouring="add-remove").release([0] * 8)
    >>> bool((nonnegative_estimate(release) >= 0).all())
    True
    """
    if not isinstance(release, WorkloadRelease):
        raise InvalidParameterError(
            f"release is of type {type(release).__name__}: pass the result of "
            "MatrixMechanism.release"
        )
    strategy, estimate = release.strategy, release.estimate
    if estimate is None:
        raise InvalidParameterError(
            "release has no estimate, because its histogram has more cells than fit in memory: use "
            "its answers or its tables"
        )
    measurements, cells = strategy.shape
    if cells <= _MOST_CELLS_SOLVED and measurements * cells <= LARGEST_WRITTEN:
        solved = nearest_nonnegative(strategy.written_out(), estimate)
        if solved is not None:
            return solved
        # Without full column rank the exchanges may not end; the search copes with that.
    return searched_nonnegative(strategy, estimate, release.noise_scale)


def integer_counts(estimate: FloatArray) -> NDArray[np.int64]:
    """Return integers whose total is that of the estimate, rounded.

    Every number is rounded down, except that those with the largest remainders are rounded up until
    the total is right. Non-negative numbers stay non-negative, and none moves by 1 or more.

    Parameters
    ----------
    estimate : ndarray
        Below 2**53 in size, so that integers are exact.

    Examples
    --------
    >>> integer_counts(np.array([0.5, 2.2, 1.4])).tolist()
    [1, 2, 1]
    """
    values = finite_array(estimate, "estimate")
    if not (np.abs(values) < LARGEST_EXACT_INTEGER).all():
        raise InvalidParameterError("estimate must hold numbers below 2**53: scale it down")
    floors = np.floor(values)
    remainders = values - floors
    up = int(np.rint(np.sum(remainders)))
    # Stable, so that ties are decided the same way on every machine.
    order = np.argsort(-remainders, axis=None, kind="stable")
    whole = floors.astype(np.int64).ravel()
    whole[order[:up]] += 1
    return whole.reshape(values.shape)
