"""Records as integers: exactly within their bounds, and a function of the record alone."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from matrixdp import InvalidParameterError
from matrixdp.queries import PublicBounds
from matrixdp.queries.grid import RecordGrid, squared_lengths

NORMS = st.floats(-60, 60).map(lambda power: 2.0**power)
ROWS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 7)),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=64),
)


def exact_norm_squared(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(number)) ** 2 for number in row), start=Fraction(0))


@settings(max_examples=100)
@given(NORMS, ROWS, st.floats(-3, 3))
def test_no_clipped_row_leaves_the_norm(norm: float, rows: np.ndarray, power: float) -> None:
    # Both wild rows and rows whose norms are close to the bound.
    tame = np.clip(rows, -1e150, 1e150)
    lengths = np.maximum(np.linalg.norm(tame, axis=1), 1e-150)
    near = tame * (norm / lengths * 2.0**power)[:, None]
    grid = RecordGrid(PublicBounds(rows.shape[1], norm=norm))
    for row in np.vstack([grid(rows), grid(near)]) * grid.steps:
        assert exact_norm_squared(row) <= Fraction(norm) ** 2


@pytest.mark.parametrize("columns", [1, 2, 3, 100, 5000])
def test_clipped_rows_are_as_long_as_the_bound_allows(columns: int) -> None:
    grid = RecordGrid(PublicBounds(columns, norm=1.7))
    rows = np.random.default_rng(columns).standard_normal((20, columns)) * 1e6
    clipped = grid(rows) * grid.steps
    lengths = np.linalg.norm(clipped, axis=1)
    assert lengths.max() <= 1.7
    assert lengths.min() >= 1.7 * (1 - 2.0**-19 * columns**0.5)
    directions = rows / np.linalg.norm(rows, axis=1)[:, None]
    np.testing.assert_allclose(clipped, 1.7 * directions, atol=1.7 * 2.0**-17)


def test_rows_at_the_bound_move_by_a_few_steps_only() -> None:
    rows = np.array([[0.6, 0.8], [0.8, -0.6], [1.0, 0.0]])
    grid = RecordGrid(PublicBounds(2, norm=1.0))
    assert np.abs(grid(rows) * grid.steps - rows).max() <= 3 * 2.0**-20


def test_rows_inside_are_rounded_to_the_nearest_step() -> None:
    rows = np.random.default_rng(6).uniform(-0.4, 0.4, (100, 5))
    grid = RecordGrid(PublicBounds(5, norm=1.0))
    np.testing.assert_array_equal(grid(rows), np.rint(rows / grid.steps))


def test_the_largest_and_the_smallest_floats_are_clipped_in_their_direction() -> None:
    grid = RecordGrid(PublicBounds(2, norm=1.0))
    rows = np.array([[1.7e308, 1.7e308], [-1e308, 5e-324], [0.0, 0.0], [5e-324, 0.0]])
    expected = [[0.5**0.5, 0.5**0.5], [-1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    np.testing.assert_allclose(grid(rows) * grid.steps, expected, atol=1e-5)


@settings(max_examples=100)
@given(
    ROWS,
    st.lists(st.tuples(st.floats(-50, 50), st.floats(0.01, 100)), min_size=7, max_size=7),
    st.booleans(),
)
def test_no_number_leaves_the_box(
    rows: np.ndarray,
    ranges: list[tuple[float, float]],
    with_norm: bool,  # noqa: FBT001
) -> None:
    lower = np.array([low for low, _ in ranges])[: rows.shape[1]]
    upper = lower + np.array([width for _, width in ranges])[: rows.shape[1]]
    if with_norm:
        lower, upper = np.minimum(lower, 0.0), np.maximum(upper, 0.0)
    bounds = PublicBounds(rows.shape[1], lower=lower, upper=upper, norm=7.0 if with_norm else None)
    grid = RecordGrid(bounds)
    for row in grid(np.vstack([rows, np.clip(rows, -20, 20)])) * grid.steps:
        assert all(lower <= row)
        assert all(row <= upper)
        if with_norm:
            assert exact_norm_squared(row) <= 49


def test_a_row_does_not_depend_on_its_block() -> None:
    rng = np.random.default_rng(3)
    for columns in (1, 5, 64, 3000):
        rows = rng.standard_normal((40, columns)) * rng.uniform(0.2, 3.0, (40, 1))
        grid = RecordGrid(PublicBounds(columns, norm=float(columns) ** 0.5))
        whole = grid(rows)
        for other in (
            np.asfortranarray(rows),
            rows[::-1][::-1],
            np.repeat(rows, 2, axis=1)[:, ::2],
        ):
            np.testing.assert_array_equal(grid(other), whole)
        for start in range(0, 40, 7):
            np.testing.assert_array_equal(grid(rows[start : start + 7]), whole[start : start + 7])
        single = np.array([grid(row[None])[0] for row in rows])
        np.testing.assert_array_equal(single, whole)


@pytest.mark.parametrize("scale", [1.0, 1e-40, 1e30, 3e38])
def test_float32_and_float64_give_the_same_numbers(scale: float) -> None:
    rows = (np.random.default_rng(4).standard_normal((50, 6)) * scale).clip(-3e38, 3e38)
    single = rows.astype(np.float32)
    single[0] = 0.0
    for bounds in (
        PublicBounds(6, norm=2.0),
        PublicBounds(6, norm=1e-60),
        PublicBounds(6, norm=2.0**-115),  # over its step 2**136, which float32 does not hold
        PublicBounds(6, lower=-1.5, upper=2.5),
        PublicBounds(6, lower=-1e45, upper=2.5e60),
    ):
        grid = RecordGrid(bounds)
        np.testing.assert_array_equal(grid(single), grid(single.astype(np.float64)))


def test_sums_of_squares_do_not_depend_on_the_order() -> None:
    whole = np.random.default_rng(5).integers(-(2**21), 2**21, (3, 50_000))
    # Groups of 2048 columns are exact, and are added from left to right.
    groups = np.array_split(whole, range(2048, 50_000, 2048), axis=1)
    exact = [np.square(group).sum(axis=1) for group in groups]
    expected = functools.reduce(np.add, [part.astype(np.float64) for part in exact])
    numbers = whole.astype(np.float64)
    for layout in (numbers, np.asfortranarray(numbers), np.repeat(numbers, 3, axis=1)[:, ::3]):
        np.testing.assert_array_equal(squared_lengths(layout), expected)


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
    with pytest.raises(InvalidParameterError, match="NaN or infinity"):
        RecordGrid(bounds)(np.array([[0.0, 0.5], [value, 0.5]], dtype=kind))


def test_rows_outside_both_a_norm_and_a_box_keep_their_length() -> None:
    # The ends of the box are just below a multiple of the step, and its corner is just outside the
    # norm: the row that is clamped to the box is almost a step longer than its integers.
    rng = np.random.default_rng(9)
    for columns in (1, 2, 3, 5, 8) * 40:
        norm = float(rng.uniform(2.0**20, 2.0**21))  # the step is 1
        end = math.ceil(norm / columns**0.5) + float(rng.uniform(0.4, 0.99))
        grid = RecordGrid(PublicBounds(columns, norm=norm, lower=-end, upper=end))
        row = grid(rng.choice([-1e9, 1e9], (1, columns)))[0]
        assert norm * (1 - 2.0**-19 * columns**0.5) <= float(np.linalg.norm(row)) <= norm
        assert exact_norm_squared(row) <= Fraction(norm) ** 2


def four_squares(total: int) -> list[int]:
    """Return four integers whose squares add up to a number (Lagrange)."""
    for first in range(math.isqrt(total), 0, -1):
        for second in range(math.isqrt(total - first**2), -1, -1):
            rest = total - first**2 - second**2
            for third in range(math.isqrt(rest), -1, -1):
                fourth = math.isqrt(rest - third**2)
                if fourth**2 == rest - third**2:
                    return [first, second, third, fourth]
    return []


@pytest.mark.parametrize("norm", [2.0**20 + 0.3, 1234567.8, 2.0**21 - 0.1])
def test_the_norm_is_exact_to_the_last_integer(norm: float) -> None:
    most = math.floor(Fraction(norm) ** 2)
    grid = RecordGrid(PublicBounds(4, norm=norm))
    inside, outside = np.array([four_squares(most), four_squares(most + 1)], dtype=np.float64)
    np.testing.assert_array_equal(grid(inside[None])[0], inside)
    assert exact_norm_squared(grid(outside[None])[0]) <= most


def test_a_wrong_length_of_clipped_rows_could_not_break_the_bounds() -> None:
    # Rows are tested after they are scaled: the claim does not rest on how they are.
    bounds = PublicBounds(2, norm=1.0, lower=-0.5, upper=0.9)
    for factor in (1.01, 1.5, np.nan):
        grid = RecordGrid(bounds)
        grid._length *= factor
        for row in grid(np.array([[9.0, 9.0], [-9.0, 9.0], [-0.5, 0.9]])) * grid.steps:
            assert exact_norm_squared(row) <= 1
            assert all(row >= -0.5)
            assert all(row <= 0.9)


def test_steps_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        RecordGrid(PublicBounds(2, norm=1.0)).steps[0] = 9.0


def test_a_record_is_clipped_if_a_number_moves_by_more_than_a_step() -> None:
    # Norm 2**20: the step is 1.
    grid = RecordGrid(PublicBounds(1, lower=-(2.0**20), upper=2.0**20))
    moved = np.array([[0.0], [0.4], [1.0], [1.01], [3.0], [9.0]])
    assert grid.clipped(2.0**20 + moved).tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("columns", [3, 256, 3000])
def test_float32_rows_at_the_edge_of_the_norm_are_within_it(columns: int) -> None:
    # Nearer to the limit than float32 can add up squares, on either side of it.
    rng = np.random.default_rng(columns)
    rows = rng.standard_normal((300, columns))
    rows *= (1.3 / np.linalg.norm(rows, axis=1) * (1.0 + rng.uniform(-2e-6, 2e-6, 300)))[:, None]
    single = rows.astype(np.float32)
    grid = RecordGrid(PublicBounds(columns, norm=1.3))
    whole = grid(single)
    limit = (Fraction(1.3) / Fraction(float(grid.steps[0]))) ** 2
    squares = [sum(int(number) ** 2 for number in row) for row in whole]
    assert all(square <= limit for square in squares)
    assert sum(square > limit * (1 - Fraction(1, 10**5)) for square in squares) > 30
    np.testing.assert_array_equal(whole, grid(single.astype(np.float64)))
