"""Measurements of counts of records: what a strategy measures before noise is added."""

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.collecting import collected
from matrixdp.parameters import positive_integer
from matrixdp.workloads import ResidualStrategy, Strategy, Workload
from matrixdp.workloads.counting import TableCounts, checked_counts
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL

__all__ = ["Counts", "checked_most", "measured"]

Counts: TypeAlias = Literal["histogram", "records"]
"""What is measured: the number of records in each cell, or the records themselves."""


def measured(
    workload: Workload,
    strategy: Strategy,
    counts: Counts,
    data: Any,
    most_records: int = LARGEST_TOTAL,
) -> NDArray[np.float64]:
    """Return the exact measurements of a histogram or of records, in one column.

    They are private. More records than the bound are refused.
    """
    if counts == "histogram":
        # `measure`, not `apply`: its products are compensated, which the sensitivity counts on.
        return strategy.measure(checked_counts(data, workload, most_records)).reshape(-1, 1)
    if isinstance(strategy, ResidualStrategy):
        tables = _counted(workload, strategy.tables, data, most_records)
        return strategy.measure_tables(tables).reshape(-1, 1)
    # Any other strategy is for histograms that fit in memory.
    whole = tuple(range(len(workload.dimensions)))
    table = _counted(workload, (whole,), data, most_records)[whole]
    return measured(workload, strategy, "histogram", table, most_records)


def _counted(
    workload: Workload, tables: tuple[tuple[int, ...], ...], data: Any, most_records: int
) -> dict[tuple[int, ...], NDArray[np.int64]]:
    counting = TableCounts(workload.dimensions, tables)
    return counting.finish(collected(counting.partial, data), most_records)


def checked_most(most_records: Any, strategy: Strategy) -> int:
    """Return a public bound of the number of records that a strategy can measure, or raise."""
    most = positive_integer(most_records, "most_records")
    largest = strategy.most_records if isinstance(strategy, ResidualStrategy) else LARGEST_TOTAL
    if not most <= largest:
        raise InvalidParameterError(
            f"most_records={most} is more than the {largest} that this strategy measures: state "
            "less, or pass a ResidualStrategy of smaller tables"
        )
    return most
