"""The optimiser that HDMM uses by default for Gaussian noise, if HDMM can be imported.

HDMM is not a package. Clone https://github.com/dpcomp-org/hdmm, check out commit 08c1ba4 and put
its folder ``src`` on PYTHONPATH. Its default for one attribute, ``OPT0(n, approx=True)``, takes the
best of the identity, the total and what ``McKennaConvex`` finds. On prefixes and ranges that is the
last one, so it is run alone, at its defaults.
"""

import importlib
from typing import Any, NamedTuple

import numpy as np

from matrixdp.workloads import Workload

__all__ = ["HDMM_COMMIT", "DefaultFound", "default_strategy", "is_importable"]

HDMM_COMMIT = "08c1ba4"
"""The commit of dpcomp-org/hdmm that is compared with."""


class DefaultFound(NamedTuple):
    """What HDMM finds."""

    measurements: np.ndarray[Any, Any]
    squared_error: float
    """The sum of the queries' variances at unit noise, as HDMM states it."""


def is_importable() -> bool:
    """Return whether HDMM is on the path, and load it."""
    # Limits on BLAS threads reach only libraries that are loaded when they are set.
    try:
        importlib.import_module("hdmm.templates")
    except ImportError:
        return False
    return True


def default_strategy(workload: Workload) -> DefaultFound:
    """Return the measurements that HDMM chooses for queries on one attribute."""
    templates = importlib.import_module("hdmm.templates")
    queries = importlib.import_module("hdmm.workload")
    template = templates.McKennaConvex(workload.cells)
    # It asks a workload for its Gram matrix alone, so both optimisers get the same numbers.
    error = template.optimize(queries.ExplicitGram(workload.gram(), workload.rows))
    return DefaultFound(np.asarray(template.strategy().dense_matrix()), float(error))
