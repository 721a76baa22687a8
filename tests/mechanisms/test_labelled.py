"""Matrices that may be released, and those whose numbers would change on the way."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError

CHECKED = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5)).checked
TOO_LARGE = 2**53 + 1
LISTS: dict[str, Any] = {
    "a cell": [[TOO_LARGE, 0.5]],
    "a negative cell": [[-TOO_LARGE, 0.5]],
    "an array beside floats": [np.array([TOO_LARGE, 0]), np.array([0.5, 1.0])],
    "a range": [range(TOO_LARGE, TOO_LARGE + 2), [0.5, 1.0]],
    "a numpy integer": [(np.int64(TOO_LARGE), 0.5)],
    "an unsigned integer": [[np.uint64(2**64 - 1), 0.5]],
    "an array": np.array([[TOO_LARGE, 1]]),
}


@pytest.mark.parametrize("matrix", LISTS.values(), ids=LISTS)
def test_integers_beyond_float64_are_refused(matrix: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"2\*\*53"):
        CHECKED(matrix)


def test_smaller_integers_and_truth_values_become_floats() -> None:
    matrices: list[list[list[Any]]] = [
        [[True, 2**53], [0.5, -(2**53)]],
        [[np.True_, 1], [np.int8(3), 4.0]],
    ]
    for matrix in matrices:
        array = CHECKED(matrix).array
        assert array.dtype == np.float64
        assert array.tolist() == [[float(cell) for cell in row] for row in matrix]


def test_masked_rows_are_refused() -> None:
    row = np.ma.array([1.0, 2.0], mask=[False, True])
    for matrix in ([row, [3.0, 4.0]], [row, row], [[3.0, 4.0], row]):
        with pytest.raises(InvalidParameterError, match="masked"):
            CHECKED(matrix)


def test_pandas_columns_of_one_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [TOO_LARGE], "b": [0.5]}).set_axis(["a", "a"], axis=1)
    with pytest.raises(InvalidParameterError, match=r"2\*\*53"):
        CHECKED(frame)
    harmless = pandas.DataFrame({"a": [3], "b": [0.5]}).set_axis(["a", "a"], axis=1)
    assert CHECKED(harmless).array.tolist() == [[3.0, 0.5]]


def test_polars_columns_that_are_no_floats() -> None:
    polars = pytest.importorskip("polars")
    moment = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    for column in (
        polars.Series("a", [Decimal(TOO_LARGE)]),
        polars.Series("a", [moment]),
        polars.Series("a", [1], dtype=polars.Int128),
        polars.Series("a", ["1"]),
    ):
        with pytest.raises(InvalidParameterError, match="column of type"):
            CHECKED(polars.DataFrame([column, polars.Series("b", [0.5])]))
    with pytest.raises(InvalidParameterError, match=r"2\*\*53"):
        CHECKED(polars.DataFrame({"a": [TOO_LARGE], "b": [0.5]}))
    kept = CHECKED(polars.DataFrame({"a": [3], "b": [0.5], "c": [True]}))
    assert kept.array.tolist() == [[3.0, 0.5, 1.0]]
