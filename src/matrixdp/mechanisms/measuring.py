"""Measurements of counts of records: what a strategy measures before noise is added."""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from matrixdp.workloads import ResidualStrategy, Strategy, Workload
from matrixdp.workloads.counting import checked_counts, counted_tables

__all__ = ["Counts", "measured"]

Counts: TypeAlias = Literal["histogram", "records"]
"""What is measured: the number of records in each cell, or the records themselves."""


def measured(
    workload: Workload, strategy: Strategy, counts: Counts, data: Any
) -> NDArray[np.float64]:
    """Return the exact measurements of a histogram or of records, in one column.

    They are private.
    """
    if counts == "histogram":
        # `measure`, not `apply`: its products are compensated, which the sensitivity counts on.
        return strategy.measure(checked_counts(data, workload)).reshape(-1, 1)
    if isinstance(strategy, ResidualStrategy):
        tables = counted_tables(data, workload.dimensions, strategy.tables)
        return strategy.measure_tables(tables).reshape(-1, 1)
    # Any other strategy is for histograms that fit in memory.
    kept = tuple(range(len(workload.dimensions)))
    histogram = counted_tables(data, workload.dimensions, [kept])[kept]
    return measured(workload, strategy, "histogram", histogram)
