"""Equal sets and equal covariances compare equal, and share a hash."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Kronecker,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.covariance import SymmetricDiagonal
from matrixdp.queries import Bins, PublicBounds, Sum
from matrixdp.sensitivity import ScaledBall, ScaledSymmetricBall

SQUARE = np.array([[2.0, 0.0], [0.0, 3.0]])
# Each with a value that differs in one number alone.
MAKERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "RowBounds": (lambda: RowBounds([1.0, 2.0], "replace"), RowBounds([1.0, 3.0], "replace")),
    "relation": (lambda: RowBounds([1.0, 2.0], "replace"), RowBounds([1.0, 2.0], "add-remove")),
    "length": (lambda: RowBounds([1.0], "replace"), RowBounds([1.0, 1.0], "replace")),
    "RowBox": (lambda: RowBox([1.0, 2.0], "replace"), RowBox([1.0, 2.0], "replace", [1.0, 2.0])),
    "kind": (lambda: RowBox([1.0, 2.0], "replace"), RowBounds([1.0, 2.0], "replace")),
    "ScaledBall": (
        lambda: ScaledBall(1.0, [1.0], [2.0, 3.0], "replace"),
        ScaledBall(1.0, [2.0], [2.0, 3.0], "replace"),
    ),
    "ScaledSymmetricBall": (
        lambda: ScaledSymmetricBall(1.0, [2.0, 3.0], "replace"),
        ScaledSymmetricBall(1.0, [2.0, 4.0], "replace"),
    ),
    "SymmetricDiagonal": (lambda: SymmetricDiagonal([1.0]), SymmetricDiagonal([1.0, 1.0])),
    "Diagonal": (lambda: Diagonal([[1.0, 2.0]]), Diagonal([[1.0], [2.0]])),
    "Kronecker": (lambda: Kronecker(SQUARE, SQUARE), Kronecker(SQUARE, 2 * SQUARE)),
    "one side": (lambda: Kronecker(rows=SQUARE), Kronecker(columns=SQUARE)),
    "PublicBounds": (lambda: PublicBounds(2, lower=0, upper=1), PublicBounds(2, norm=1.0)),
    "Bins": (lambda: Bins("age", [0, 18, 65]), Bins("age", [0, 18, 66])),
    "query": (
        lambda: Sum(PublicBounds(2, lower=0, upper=1), "replace"),
        Sum(PublicBounds(2, lower=0, upper=2), "replace"),
    ),
    "FrobeniusBall": (lambda: FrobeniusBall(1.0, "replace"), SymmetricBall(1.0, "replace")),
}


@pytest.mark.parametrize(("make", "other"), MAKERS.values(), ids=MAKERS)
def test_equal_values_are_equal(make: Callable[[], Any], other: Any) -> None:
    value, twin = make(), make()
    assert value is not twin
    assert value == twin
    assert hash(value) == hash(twin)
    assert {value: "found"}[twin] == "found"
    for copied in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):  # noqa: S301
        assert copied == value
    assert value != other
    assert other != value
    assert value != "something else"


def test_weights_that_are_the_default_may_be_given() -> None:
    assert RowBox([1.0, 2.0], "replace") == RowBox([1.0, 2.0], "replace", weights=[1.0, 1.0])


def test_negative_zero_is_zero() -> None:
    negative = SQUARE * np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert Kronecker(rows=negative) == Kronecker(rows=SQUARE)
    assert hash(Kronecker(rows=negative)) == hash(Kronecker(rows=SQUARE))


def test_a_mechanism_may_make_the_set_of_a_query_again() -> None:
    query = Sum(PublicBounds(2, lower=0, upper=[1, 9]), "add-remove")
    assert isinstance(query.sensitivity, RowBox)

    def rebuilt(_: object, budget: Budget, factor: float = 1.0) -> IMGM:
        members = query.sensitivity
        assert isinstance(members, RowBox)
        box = RowBox(factor * members.bounds, members.neighbouring, members.weights)
        return IMGM(box, budget)

    assert query.release([[0.5, 2.0]], Budget(1.0, 1e-5), mechanism=rebuilt).shape == (1, 2)
    with pytest.raises(InvalidParameterError, match="another sensitivity"):
        query.release(
            [[0.5, 2.0]],
            Budget(1.0, 1e-5),
            mechanism=lambda members, budget: rebuilt(members, budget, 0.5),
        )
