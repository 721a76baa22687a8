"""Measuring only blocks that have weight, where weights leave others out of a product."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from matrixdp.workloads.operator import FloatArray, along_axes
from matrixdp.workloads.strategies.compensated import compensated_product

__all__ = ["measured_blocks", "run_starts"]

# With more runs per axis the choices of one for each are too many to be worth separating.
_MOST_RUNS = 4


def run_starts(weights: FloatArray, axis: int) -> NDArray[np.intp]:
    """Return where the weights change along an axis.

    Examples
    --------
    >>> run_starts(np.array([[1.0, 2.0, 2.0], [1.0, 0.0, 0.0]]), 1).tolist()
    [0, 1]
    """
    rows = np.moveaxis(weights, axis, 0)
    changes = [not np.array_equal(one, other) for one, other in pairwise(rows)]
    return np.flatnonzero([True, *changes])


def measured_blocks(
    factors: Sequence[FloatArray], weights: FloatArray, histogram: FloatArray
) -> FloatArray:
    """Return ``(F_1 x .. x F_k) x`` where there is weight, and 0 elsewhere.

    Along each axis the rows fall into runs of the same weights. For every choice of one run for
    each axis the single rows, which sum an axis up, are applied first, and the result is shared by
    all choices that agree so far; the other rows follow when the array is small. Whatever the
    order, every axis is one compensated product, so that the error bound is the same.
    """
    result = np.zeros(weights.shape)
    runs = [list(_runs(weights, axis)) for axis in range(weights.ndim)]

    def measure(array: FloatArray, chosen: tuple[slice, ...]) -> None:
        axis = len(chosen)
        if axis == len(runs):
            result[chosen] = _applied(factors, chosen, array)
            return
        for run in runs[axis]:
            if not np.any(weights[(*chosen, run)]):
                continue  # nothing below this choice is measured
            if run.stop - run.start == 1:
                # A single row sums the axis up at once, for all choices along the later axes.
                row = factors[axis][run]
                summed = compensated_product(row, np.ascontiguousarray(np.moveaxis(array, axis, 0)))
                measure(np.moveaxis(summed, 0, axis), (*chosen, run))
            else:
                measure(array, (*chosen, run))

    measure(histogram, ())
    return result


def _applied(
    factors: Sequence[FloatArray], chosen: tuple[slice, ...], array: FloatArray
) -> FloatArray:
    """Return the products with runs of several rows, once single rows have been applied."""
    maps = [
        lambda part, m=factor[run]: compensated_product(m, np.ascontiguousarray(part))
        for factor, run in zip(factors, chosen, strict=True)
    ]
    # Single rows have been applied already, on the way down.
    several = [axis for axis, run in enumerate(chosen) if run.stop - run.start > 1]
    return along_axes(maps, array, several)


def _runs(weights: FloatArray, axis: int) -> Iterator[slice]:
    """Return the runs along an axis, or all of it where there are too many."""
    starts = run_starts(weights, axis).tolist()
    ends = [*starts[1:], weights.shape[axis]]
    if len(starts) > _MOST_RUNS:
        starts, ends = [0], [weights.shape[axis]]
    return (slice(start, end) for start, end in zip(starts, ends, strict=True))
