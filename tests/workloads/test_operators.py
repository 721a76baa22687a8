"""Workloads as operators, against the same queries written out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from matrixdp import InvalidParameterError
from matrixdp.errors import ShapeError
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
    optimal_strategy,
)
from matrixdp.workloads.comparison import compared_errors
from reference import workloads as oracle

CASES: list[Workload] = [
    Identity(5),
    Total(4),
    Prefix(1),
    Prefix(7),
    Ranges(1),
    Ranges(6),
    Ranges(9, longest=1),
    Ranges(9, longest=4),
    Ranges(9, longest=8),
    Dense([[1.0, -2.5, 0.0], [0.25, 1.0, 3.0]]),
    Product([Prefix(3), Ranges(4), Total(2)]),
    Product([Dense([[1, 2], [3, 4], [0, 1]]), Identity(3)]),
    Union([Prefix(5), Identity(5), Ranges(5, longest=2)]),
    Union([Product([Prefix(3), Total(4)]), Product([Total(3), Ranges(4)])]),
    marginals([2, 3, 4], [(0,), (1, 2), ()]),
]


@pytest.mark.parametrize("workload", CASES, ids=repr)
def test_operators_are_their_matrices(workload: Workload) -> None:
    matrix = oracle.dense(workload)
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 1000, workload.cells)
    answers = rng.integers(-9, 9, workload.rows)
    assert workload.shape == matrix.shape
    np.testing.assert_array_equal(workload.apply(counts), matrix @ counts)
    np.testing.assert_array_equal(
        workload.apply(counts.reshape(workload.dimensions)), matrix @ counts
    )
    np.testing.assert_array_equal(workload.apply_transpose(answers), matrix.T @ answers)
    np.testing.assert_array_equal(workload.gram(), matrix.T @ matrix)
    np.testing.assert_array_equal(workload.column_norms_squared(), np.sum(matrix**2, axis=0))
    assert workload.frobenius_squared() == np.sum(matrix**2)
    np.testing.assert_array_equal(workload.written_out(), matrix)
    np.testing.assert_array_equal(workload.magnitudes(), np.abs(matrix).sum(axis=1))


@given(st.integers(1, 40), st.data())
def test_limited_ranges_of_any_size(size: int, data: st.DataObject) -> None:
    longest = data.draw(st.integers(1, size))
    workload = Ranges(size, longest=longest)
    matrix = oracle.dense(workload)
    assert workload.rows == len(matrix)
    np.testing.assert_array_equal(workload.gram(), matrix.T @ matrix)


def test_the_gram_matrix_of_floats_is_as_far_off_as_it_says() -> None:
    rough = Dense(np.random.default_rng(1).standard_normal((40, 6)))
    exact = np.array(rough.matrix, dtype=np.longdouble)
    off = np.linalg.norm((exact.T @ exact - rough.gram()).astype(float))
    assert 0.0 < off <= rough.gram_error * np.trace(rough.gram())
    assert Dense([[1, 2], [3, 4]]).gram_error == 0.0
    assert Union([Product([rough, Prefix(3)])]).gram_error > rough.gram_error


def test_large_structures_are_never_written_out() -> None:
    workload = Product([Prefix(4096), Total(1000), Prefix(4096)])
    assert workload.shape == (4096**2, 4096**2 * 1000)
    assert workload.frobenius_squared() == (4096 * 4097 // 2) ** 2 * 1000
    with pytest.raises(InvalidParameterError, match="Product of smaller attributes"):
        workload.gram()
    with pytest.raises(InvalidParameterError, match="use its operators"):
        workload.written_out()
    with pytest.raises(InvalidParameterError, match="leave out attributes"):
        workload.column_norms_squared()
    errors = compared_errors(Product([Prefix(64), Total(1000), Prefix(500)]), "add-remove")
    assert errors["direct"] == pytest.approx((64 * 500) ** 0.5)
    huge = Product([Prefix(16), Total(2200), Total(2200)])
    best = optimal_strategy(huge, neighbouring="add-remove")
    assert best.rmse == pytest.approx(
        optimal_strategy(Prefix(16), neighbouring="add-remove").rmse, rel=1e-7
    )


def anything(value: object) -> Any:
    """Return what the types would not let pass."""
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dense(np.zeros((0, 3))), "not empty"),
        (lambda: Dense([[1.0, np.nan]]), "NaN"),
        (lambda: Dense([[1.0, 2.0], [0.0, 0.0]]), "row of zeros at index 1"),
        (lambda: Dense([["a"]]), "dtype"),
        (lambda: Dense(np.ones((1, 8193))), "Product of smaller"),
        (lambda: Prefix(0), "size=0"),
        (
            lambda: Prefix(2.5),  # type: ignore[arg-type]
            "size=2.5",
        ),
        (lambda: Prefix(8193), "merge cells"),
        (lambda: Ranges(5, longest=6), "longest=6"),
        (lambda: Ranges(5, longest=0), "longest=0"),
        (lambda: Product([]), "empty"),
        (
            lambda: Product([np.eye(2)]),  # type: ignore[list-item]
            "ndarray",
        ),
        (
            lambda: Product([Union([Prefix(2), Total(2)])]),  # type: ignore[list-item]
            "Union of Products",
        ),
        (lambda: Union([]), "empty"),
        (
            lambda: Union([np.eye(2)]),  # type: ignore[list-item]
            "Dense",
        ),
        (lambda: Union([Prefix(3), Prefix(4)]), "one layout"),
        (lambda: marginals([2, 3], [(2,)]), "numbered from 0 to 1"),
        (lambda: Prefix(3).apply([1, 2]), "3 cells"),
        (lambda: Prefix(3).apply([1, 2, np.inf]), "NaN or infinity"),
        (lambda: Prefix(3).apply(["a", "b", "c"]), "dtype"),
        (lambda: Prefix(3).apply_transpose([1, 2]), "pass 3 numbers"),
        (lambda: Dense(sparse.eye_array(3)), r"matrix is sparse: pass its \.toarray"),
        (lambda: Product(anything(Prefix(3))), r"factors is of type Prefix.*\[Prefix\(3\)\]"),
        (lambda: Product(anything(5)), "factors is of type int"),
        (lambda: Union(anything(Prefix(3))), "parts is of type Prefix.*pass workloads"),
        (lambda: marginals(anything(5), [(0,)]), "dimensions is of type int"),
        (lambda: marginals(anything([2.5, 3]), [(0,)]), "dimensions=2.5"),
        (lambda: marginals([], [()]), "dimensions=.* is empty"),
        (lambda: marginals([2, 3], anything(0)), "kept is of type int"),
        (lambda: marginals([2, 3], []), "kept=.* is empty"),
        (lambda: marginals([2, 3], anything([0])), r"a table in kept is of type int.*\(0,\)"),
        (lambda: marginals([2, 3], anything(["0"])), "a table in kept is of type str"),
        (lambda: marginals([2, 3], [(0, 0)]), "every attribute once"),
        (lambda: marginals([2, 3], [(True,)]), r"kept holds \(True,\)"),
        (lambda: marginals([2, 3], anything([(1.0,)])), r"kept holds \(1.0,\)"),
        (lambda: marginals([2, 3], anything([([1],)])), "numbered from 0 to 1"),
        (lambda: marginals([2, 3], [(-1,)]), "numbered from 0 to 1"),
    ],
)
def test_bad_workloads_are_refused_with_the_remedy(make: object, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ma.array([1, 2, 3], mask=[False, True, False]), "masked array"),
        (["1", "2", "3"], "dtype str"),
        ([1, None, 3], "dtype object"),
        ([1, 2j, 3], "dtype complex"),
        ([1, np.nan, 3], "NaN or infinity"),
        ([1, -np.inf, 3], "NaN or infinity"),
        ([[1], [2, 3]], "ragged"),
        ([1, 2, 2**53 + 1], "beyond 2"),
        (sparse.csr_array([[1, 2, 3]]), r"\.toarray"),
    ],
)
def test_operators_refuse_anything_but_numbers(bad: Any, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=f"values.*{message}"):
        Prefix(3).apply(bad)
    with pytest.raises((InvalidParameterError, ShapeError), match=f"answers.*{message}"):
        Prefix(3).apply_transpose(bad)


def test_tables_may_be_named_in_any_way() -> None:
    named = marginals((2, 3), anything(({0, 1}, [np.int64(1)], range(0))))
    assert repr(named) == repr(marginals([2, 3], [(0, 1), (1,), ()]))


def test_more_magnitudes_than_memory_holds_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="ask fewer"):
        Product([Ranges(1024), Ranges(1024)]).magnitudes()
    with pytest.raises(InvalidParameterError, match="merge their cells"):
        Product([Total(8192)] * 3).magnitudes()
    assert Ranges(8192, longest=2).magnitudes().shape == (8192 + 8191,)
