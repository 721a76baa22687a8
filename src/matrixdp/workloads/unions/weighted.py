"""What is made of a single product of strategies for a union: better ones, and a lower bound."""

from typing import NamedTuple

from matrixdp.workloads.operator import LARGEST_HISTOGRAM, Workload
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.strategies.product import Strategy
from matrixdp.workloads.unions.bound import cell_weights, union_bound
from matrixdp.workloads.unions.residual import residual_strategy
from matrixdp.workloads.unions.row_weights import row_weighted_strategy

__all__ = ["Weighted", "weighted_strategies"]


class Weighted(NamedTuple):
    """Strategies, and a proven lower bound of every strategy's error for adding or removing."""

    strategies: tuple[Strategy, ...]
    lower_bound: float


def weighted_strategies(
    workload: Workload, product: Strategy, progress: Progress | None = None
) -> Weighted:
    """Return strategies with weights, and the bound of a union.

    There are none for more than 2**26 cells, each of which would have a weight.

    Parameters
    ----------
    workload : Workload
        A union of products.
    product : Strategy
        A single product that answers it.
    progress : callable, optional
        Told of every step in each problem that is solved.
    """
    bound = union_bound(workload, cell_weights(workload, product))
    if workload.cells > LARGEST_HISTOGRAM:
        return Weighted((), bound)
    residual, cells = residual_strategy(workload, product, progress)
    rows = row_weighted_strategy(workload, residual, cells)
    strategies = (residual,) if rows is None else (residual, rows)
    return Weighted(strategies, max(bound, union_bound(workload, cells)))
