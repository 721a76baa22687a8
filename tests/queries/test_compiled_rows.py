"""Compiled loops over rows give the integers of numpy."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp import InvalidParameterError
from matrixdp.queries import PublicBounds, Sum, compiled_rows
from matrixdp.queries.compiled_rows import squared_below
from matrixdp.queries.exact_sums import column_sums
from matrixdp.queries.grid import RecordGrid

pytest.importorskip("numba")

# Norms of rows around the bound, far from it, and beyond what is squared exactly.
LENGTHS = st.sampled_from([1e-30, 1e-6, 0.3, 0.999999, 1.0, 1.000001, 1.7, 50.0, 1e9, 1e30])


@pytest.fixture(autouse=True)
def _for_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_rows, "_LEAST_NUMBERS", 1)


def space(grid: RecordGrid, records: NDArray[Any]) -> NDArray[Any]:
    single = records.dtype == np.float32 and grid.keeps_single
    return np.empty(records.shape, dtype=np.float32 if single else np.float64)


def by_numpy(grid: RecordGrid, records: NDArray[Any]) -> NDArray[Any]:
    whole = space(grid, records)
    grid._fill_by_numpy(records, whole)
    return whole


def compiled(grid: RecordGrid, records: NDArray[Any]) -> NDArray[Any]:
    whole = space(grid, records)
    grid.fill(records, whole)
    return whole


@st.composite
def bounded_records(draw: st.DrawFn) -> tuple[PublicBounds, NDArray[Any]]:
    columns, norm = draw(st.integers(1, 9)), draw(st.sampled_from([1.0, 1.7, 1e-20, 3e25]))
    box = draw(st.sampled_from([None, (-1.0, 1.0), (-0.3, 0.9), (0.0, 1.0)]))
    bounds = PublicBounds(
        columns,
        norm=norm if box is None or draw(st.booleans()) else None,
        lower=box and box[0] * norm,
        upper=box and box[1] * norm,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = rng.standard_normal((draw(st.integers(1, 12)), columns))
    rows *= norm / np.linalg.norm(rows, axis=1)[:, None]
    rows *= np.array([draw(LENGTHS) for _ in rows])[:, None]
    rows[rng.random(rows.shape) < 0.1] = -0.0
    kind = draw(st.sampled_from([np.float64, np.float32]))
    records = rows.clip(-3e38, 3e38).astype(kind)
    return bounds, np.asfortranarray(records) if draw(st.booleans()) else records


@settings(max_examples=200)
@given(bounded_records())
def test_the_integers_of_numpy(drawn: tuple[PublicBounds, NDArray[Any]]) -> None:
    bounds, records = drawn
    grid = RecordGrid(bounds)
    expected = by_numpy(grid, records)
    np.testing.assert_array_equal(compiled(grid, records), expected)
    assert column_sums(expected).tolist() == [sum(map(int, column)) for column in expected.T]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [1, 256, 2049, 20_000])
def test_rows_of_any_length(columns: int, kind: type) -> None:
    rng = np.random.default_rng(columns)
    records: NDArray[Any] = rng.standard_normal((30, columns)).astype(kind)
    records *= (2.0 ** rng.uniform(-1, 1, (30, 1))).astype(kind)
    norm = columns**0.5
    grid = RecordGrid(PublicBounds(columns, norm=norm))
    whole = compiled(grid, records)
    np.testing.assert_array_equal(whole, by_numpy(grid, records))
    most = (Fraction(norm) / Fraction(float(grid.steps[0]))) ** 2
    assert all(sum(int(number) ** 2 for number in row) <= most for row in whole)


def test_squares_of_what_is_squared_exactly_fit_64_bits() -> None:
    for columns in (1, 2, 3, 256, 2049, 2**24):
        assert columns * int(squared_below(columns)) ** 2 < 2**63
        assert squared_below(columns) < 2**31


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(
    "bounds",
    [
        PublicBounds(2, norm=1.0),
        PublicBounds(2, lower=0, upper=1),
        PublicBounds(2, lower=0, upper=1, norm=1),
    ],
)
def test_what_is_not_finite_is_refused(value: float, kind: type, bounds: PublicBounds) -> None:
    records: NDArray[Any] = np.array([[0.0, 0.5], [value, 0.5]], dtype=kind)
    with pytest.raises(InvalidParameterError, match="NaN or infinity"):
        compiled(RecordGrid(bounds), records)


@pytest.mark.parametrize("factor", [1.01, 1.5, 1e9, np.nan])
def test_a_wrong_length_of_clipped_rows_could_not_break_the_bounds(factor: float) -> None:
    grid = RecordGrid(PublicBounds(2, norm=1.0))
    grid._length *= factor
    for row in compiled(grid, np.array([[9.0, 9.0], [-9.0, 9.0]])) * grid.steps:
        assert sum(Fraction(float(number)) ** 2 for number in row) <= 1


def test_sums_of_the_largest_integers_are_exact() -> None:
    whole = np.full((2048, 3), 2.0**21, dtype=np.float32)
    whole[:, 1] *= -1
    whole[::2, 2] = -(2.0**21) + 1
    assert column_sums(whole).tolist() == [sum(map(int, column)) for column in whole.T]


def test_numba_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    records = np.random.default_rng(0).standard_normal((5000, 7)).astype(np.float32)
    query = Sum(PublicBounds(7, norm=2.0), "replace")
    answer = query.evaluate(records)
    monkeypatch.setattr(compiled_rows, "available_kernels", dict)
    np.testing.assert_array_equal(query.evaluate(records), answer)
