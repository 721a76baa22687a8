"""Proofs about a value hold for its copies: their arrays are read-only too."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp import IMGM, Budget, Diagonal, FrobeniusBall, Kronecker, RowBounds, RowBox
from matrixdp.workloads import ProductStrategy, StackedStrategy

BUDGET = Budget(1.0, 1e-5)
BALL = FrobeniusBall(1.0, neighbouring="replace")
PART = ProductStrategy([np.eye(3), np.eye(2)])
# Values that something is proven of, and how to get at the arrays that it is proven of.
PROVEN: list[tuple[Any, Callable[[Any], Sequence[NDArray[Any]]]]] = [
    (Diagonal([[4.0, 5.0]]), lambda it: [it.scales]),
    (
        Kronecker(25.0 * np.eye(2), np.eye(3)),
        lambda it: [it.rows, it.columns, *(side.eigenvalues(2) for side in it.sides)],
    ),
    (Kronecker(rows=25.0 * np.eye(2)), lambda it: [it.rows, it.sides[0].eigenvalues(2)]),
    (RowBounds([1.0, 2.0], neighbouring="replace"), lambda it: [it.bounds]),
    (RowBox([1.0, 2.0], neighbouring="replace"), lambda it: [it.bounds, it.weights]),
    (
        ProductStrategy([np.eye(2)], weights=[1.0, 2.0]),
        lambda it: [*it.factors, it.weights],
    ),
    (StackedStrategy([PART, PART]), lambda it: [*it.parts[0].factors, *it.parts[1].factors]),
    (IMGM(BALL, BUDGET, Diagonal([[4.0, 5.0]])), lambda it: [it.covariance.scales]),
]


def unpickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - made here


DUPLICATES = {
    "itself": lambda value: value,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": unpickled,
}


@pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES)
@pytest.mark.parametrize(("value", "arrays"), PROVEN, ids=lambda part: type(part).__name__)
def test_arrays_are_read_only(
    value: Any, arrays: Callable[[Any], Sequence[NDArray[Any]]], duplicate: Callable[[Any], Any]
) -> None:
    for array, original in zip(arrays(duplicate(value)), arrays(value), strict=True):
        assert np.array_equal(array, original)
        assert not array.flags.writeable


@pytest.mark.parametrize("duplicate", DUPLICATES.values(), ids=DUPLICATES)
def test_a_copied_mechanism_keeps_its_noise(duplicate: Callable[[Any], Any]) -> None:
    mechanism = duplicate(IMGM(BALL, BUDGET, Diagonal([[4.0, 5.0]])))
    with pytest.raises(ValueError, match="read-only"):
        mechanism.covariance.scales[:] = 1e-3  # its mu has been proven already
    assert mechanism.release(np.zeros((1, 2))).guarantee == mechanism.guarantee
