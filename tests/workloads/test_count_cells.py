"""Counting records in cells."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from matrixdp import InvalidParameterError
from matrixdp.errors import ShapeError
from matrixdp.workloads import count_cells


def test_counts_are_those_of_numpy() -> None:
    records = np.random.default_rng(0).integers(0, [3, 4, 5], (1000, 3))
    expected, _ = np.histogramdd(records, bins=[np.arange(size + 1) for size in (3, 4, 5)])
    np.testing.assert_array_equal(count_cells(records, [3, 4, 5]), expected)
    np.testing.assert_array_equal(count_cells(records[:, 0], [3]), expected.sum(axis=(1, 2)))
    assert count_cells(np.zeros((0, 2), int), [2, 2]).sum() == 0


def test_one_record_changes_one_count_by_one() -> None:
    records = np.random.default_rng(1).integers(0, 6, (50, 2))
    changes = [
        np.abs(count_cells(records, [6, 6]) - count_cells(np.delete(records, row, 0), [6, 6])).sum()
        for row in range(50)
    ]
    assert changes == [1] * 50


@pytest.mark.parametrize(
    ("records", "dimensions", "message"),
    [
        ([[0, 3]], [2, 3], r"outside 0 \.\. 2 in column 2, "),
        ([[-1, 0]], [2, 3], "column 1, counted from 1"),
        ([[0.5, 1.0]], [2, 3], "dtype"),
        ([[0, 1, 2]], [2, 3], "2 columns"),
        ([0, 1], [2, 3], "2 columns"),
        ([[0]], [], "cells"),
        ([[0]], [0], "dimensions=0"),
        ([[0, 0]], [2**20, 2**20], "merge cells"),
        (np.ma.array([[0, 1], [1, 1]], mask=[[False] * 2, [True] * 2]), [2, 3], "masked"),
        ([np.ma.array([0, 1], mask=[False, True]), [1, 1]], [2, 3], "masked"),
        (sparse.csr_array([[0, 1]]), [2, 3], "toarray"),
        ([["0", "1"]], [2, 3], "dtype str"),
        (np.zeros((0, 2), dtype="U1"), [2, 3], "dtype str"),
        ([[0, None]], [2, 3], "dtype object"),
        ([[0, 1j]], [2, 3], "dtype complex128"),
        ([[0, 1], [1]], [2, 3], "ragged"),
        ([[True, 1]], [2, 3], "booleans"),
        ([[0]], 3, "dimensions is of type int"),
        ([[0]], np.array(3), "dimensions is of type ndarray"),
        ([[0]], "3", "dimensions is of type str"),
        ([[0]], None, "dimensions is of type NoneType"),
        ([[0, 0]], {2, 3}, "dimensions is of type set"),
    ],
)
def test_bad_records_are_refused(records: Any, dimensions: Any, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        count_cells(records, dimensions)


def test_no_records_are_records() -> None:
    assert count_cells([], [3]).tolist() == [0, 0, 0]
    assert count_cells(np.zeros((0, 2)), (3, 2)).sum() == 0


@pytest.mark.parametrize(
    "records",
    [
        [[0, 8675309], [1, 1]],
        [[0, -8675309], [1, 1]],
        [[0, 8675309.5], [1, 1]],
        [[0, "8675309"], [1, 1]],
        [[0, 8675309], [1]],
        [[0, 8675309 * 2**40]],
        [[0, 8675309 + 1j]],
        [8675309, 1],
        8675309,
        [[0, 8675309, 1]],
        np.ma.array([[8675309, 1]], mask=[[False, True]]),
        sparse.csr_array([[8675309, 1]]),
    ],
)
def test_errors_hold_no_cell(records: Any) -> None:
    with pytest.raises((InvalidParameterError, ShapeError)) as refusal:
        count_cells(records, [2, 3])
    assert "8675309" not in str(refusal.value)


@pytest.mark.parametrize("cell", [True, False, np.True_, np.False_])
def test_errors_do_not_show_a_boolean(cell: Any) -> None:
    for records in ([[0, cell]], [[cell, 1], [0, 1]], np.array([[cell, cell]])):
        with pytest.raises(InvalidParameterError, match="booleans") as refusal:
            count_cells(records, [2, 3])
        assert "True" not in str(refusal.value)
        assert "False" not in str(refusal.value)


@pytest.mark.parametrize("records", [np.zeros((137, 3), int), np.zeros(137, int)])
def test_no_message_shows_how_many_records_there_are(records: Any) -> None:
    with pytest.raises(ShapeError, match="2 columns") as caught:
        count_cells(records, [2, 3])
    assert "137" not in str(caught.value)
