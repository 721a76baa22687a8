"""Strategies as named arrays.

One product is ``factor_0``, ``factor_1``, .., and ``weights`` if it has any. A stack of products is
``part_0_factor_0``, .., with as many factors in each part.
"""

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.workloads import StackedStrategy, Strategy

__all__ = ["arrays_of_strategy", "product_of_arrays", "stack_of_arrays"]

# A few digits are enough for any stack in memory, and keep int() from reading millions of them.
_STACKED = re.compile(r"part_(0|[1-9]\d{0,5})_factor_(0|[1-9]\d{0,5})")


def arrays_of_strategy(strategy: Strategy | StackedStrategy) -> dict[str, NDArray[Any]]:
    """Return the arrays of a strategy, by name."""
    if isinstance(strategy, StackedStrategy):
        return {
            f"part_{place}_{name}": array
            for place, part in enumerate(strategy.parts)
            for name, array in arrays_of_strategy(part).items()
        }
    arrays = {f"factor_{place}": factor for place, factor in enumerate(strategy.factors)}
    return arrays if strategy.weights is None else arrays | {"weights": strategy.weights}


def product_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> Strategy:
    """Return the product whose factors are numbered without gaps, and nothing else.

    Raises
    ------
    FileFormatError
        If the names are others.
    MatrixDPError
        If the arrays do not make a strategy.
    """
    # Nothing may be left over: an array that is ignored might be one that mattered.
    count = sum(name.startswith("factor_") for name in arrays)
    names = [f"factor_{place}" for place in range(count)]
    if not set(names) <= set(arrays) <= {*names, "weights"}:
        raise FileFormatError(
            "its arrays are not factor_0, factor_1 and so on, with or without weights"
        )
    return Strategy([arrays[name] for name in names], arrays.get("weights"))


def stack_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> StackedStrategy:
    """Return the stack whose parts and factors are numbered without gaps, and nothing else.

    Raises
    ------
    FileFormatError
        If the names are others.
    MatrixDPError
        If the arrays do not make a strategy.
    """
    matches = [_STACKED.fullmatch(name) for name in arrays]
    places = {(int(match[1]), int(match[2])) for match in matches if match is not None}
    parts = 1 + max((part for part, _ in places), default=-1)
    factors = 1 + max((factor for _, factor in places), default=-1)
    # Distinct places within a rectangle, as many as it has: they fill it without gaps.
    if not len(arrays) == len(places) == parts * factors:
        raise FileFormatError(
            "its arrays are not part_0_factor_0, part_0_factor_1 and so on, as many for each part"
        )
    return StackedStrategy(
        [
            Strategy([arrays[f"part_{part}_factor_{place}"] for place in range(factors)])
            for part in range(parts)
        ]
    )
