"""Linear queries on histograms, and the best strategies for answering them with Gaussian noise."""

from matrixdp.workloads.cell_names import CellNames
from matrixdp.workloads.composed import Product, Union, marginals
from matrixdp.workloads.counting import count_cells
from matrixdp.workloads.dense import Dense
from matrixdp.workloads.operator import Factor, Workload
from matrixdp.workloads.optimal import OptimalStrategy, optimal_strategy
from matrixdp.workloads.ranges import Identity, Prefix, Ranges, Total
from matrixdp.workloads.solve.certificate import Certificate, svd_bound
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.residual import ResidualStrategy
from matrixdp.workloads.strategies.stacked import StackedStrategy
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = [
    "CellNames",
    "Certificate",
    "Dense",
    "Factor",
    "Identity",
    "OptimalStrategy",
    "Prefix",
    "Product",
    "ProductStrategy",
    "Ranges",
    "ResidualStrategy",
    "StackedStrategy",
    "Strategy",
    "Total",
    "Union",
    "Workload",
    "count_cells",
    "marginals",
    "optimal_strategy",
    "svd_bound",
]


def __dir__() -> list[str]:
    return __all__
