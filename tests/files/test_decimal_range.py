"""The sensitivity that rounding decimals adds, in exact arithmetic."""

from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import FrobeniusBall, RowBounds, RowBox, SymmetricBall
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.files.formats.decimal_range import cover_decimals
from matrixdp.mechanisms.labelled import MatrixFile

SETS = [
    FrobeniusBall(0.75, "replace"),
    SymmetricBall(0.75, "replace"),
    RowBounds([0.5, 3.0, 1e-9], "replace"),
    RowBox([0.5, 3.0, 1e-9], "replace"),
]


def bounds_of(sensitivity: object) -> list[float]:
    if isinstance(sensitivity, FrobeniusBall | SymmetricBall):
        return [sensitivity.bound]
    assert isinstance(sensitivity, RowBounds | RowBox)
    return [float(bound) for bound in sensitivity.bounds]


@pytest.mark.parametrize("given_range", [2.0**-1074, 1e-310, 2.0**-1022])
def test_a_range_of_subnormal_numbers_covers_their_rounding(given_range: float) -> None:
    # Decimals around half of the smallest float: a hair apart, and one float apart when rounded.
    smallest = Fraction(2.0**-1074)
    below, above = smallest / 2, smallest / 2 * (1 + Fraction(1, 10**6))
    assert (float(below), float(above)) == (0.0, 2.0**-1074)
    for sensitivity in (FrobeniusBall(2.0**-1074, "replace"), RowBounds([2.0**-1074], "replace")):
        cover = cover_decimals(sensitivity, (1, 100), given_range)
        assert 100 * (above - below) ** 2 <= smallest**2
        assert Fraction(bounds_of(cover.sensitivity)[0]) >= 10 * smallest


@given(
    bound=st.sampled_from([1e-7, 0.25, 3.0, 1e-320, 2.0**-1074, 1e200]),
    share=st.decimals(-1, 1, places=40),
    digits=st.integers(0, 60),
    given_range=st.sampled_from([None, 1e-300, 1.0, 1e10, 1e300]),
)
def test_a_cell_at_the_bound_stays_within_the_cover(
    bound: float, share: Decimal, digits: int, given_range: float | None
) -> None:
    cover = cover_decimals(RowBox([bound], "replace"), (1, 1), given_range)
    limit = Decimal(float(cover.limits[0, 0]))
    with localcontext(prec=digits + 1):
        first = limit * share
    # More digits than a sum of these decimals has, so that it is exact.
    with localcontext(prec=2500):
        pair = (first + Decimal(bound), first - Decimal(bound))
    for second in pair:
        floats = float(str(first)), float(str(second))
        if max(abs(number) for number in floats) > limit:
            continue
        distance = abs(Fraction(floats[0]) - Fraction(floats[1]))
        assert distance <= Fraction(bounds_of(cover.sensitivity)[0])


@given(
    cells=st.lists(st.decimals(-(10**6), 10**6, places=30), min_size=3, max_size=3),
    bound=st.sampled_from([1e-9, 0.1, 25.0]),
    make=st.sampled_from([FrobeniusBall, SymmetricBall, RowBounds]),
)
def test_several_cells_at_the_bound_stay_within_the_cover(
    cells: list[Decimal], bound: float, make: type
) -> None:
    by_row = make is RowBounds
    old = make([bound] * 3 if by_row else bound, "replace")
    cover = cover_decimals(old, (3, 3), 1.1e6)
    # (2/7, 3/7, 6/7) has norm 1; on the diagonal of a symmetric matrix, or in one row. Rounded
    # towards zero, so that the decimals are apart by no more than the bound, and by hardly less.
    with localcontext(prec=200, rounding=ROUND_DOWN):
        steps = [Decimal(bound) * share / 7 for share in (2, 3, 6)]
    with localcontext(prec=400):
        moved = [cell + step for cell, step in zip(cells, steps, strict=True)]
    squares = [
        (Fraction(float(str(first))) - Fraction(float(str(second)))) ** 2
        for first, second in zip(cells, moved, strict=True)
    ]
    assert sum(squares) <= Fraction(bounds_of(cover.sensitivity)[0]) ** 2


def test_the_cover_is_needed() -> None:
    first, second = "10000000000.0000009", "10000000000.0000010"
    assert Fraction(second) - Fraction(first) <= Fraction("1e-7")
    distance = Fraction(float(second)) - Fraction(float(first))
    assert distance > 18 * Fraction(1e-7)
    cover = cover_decimals(RowBox([1e-7], "replace"), (1, 1), 1e11)
    assert distance <= Fraction(bounds_of(cover.sensitivity)[0])


@pytest.mark.parametrize("sensitivity", SETS, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("given_range", [None, 1e9])
def test_bounds_grow_by_the_formula(sensitivity: object, given_range: float | None) -> None:
    cover = cover_decimals(sensitivity, (3, 3), given_range)  # type: ignore[arg-type]
    cells = {"RowBox": 1, "RowBounds": 3}.get(type(sensitivity).__name__, 9)
    for old, new, limit in zip(
        bounds_of(sensitivity), bounds_of(cover.sensitivity), cover.limits.ravel(), strict=True
    ):
        added = Fraction(new) - Fraction(old)
        # Compared as squares, because the root of the number of cells is irrational.
        assert added**2 >= Fraction(float(limit)) ** 2 * cells / 2**104
        assert new == pytest.approx(old + limit * 2.0**-52 * cells**0.5, rel=1e-15)
        if given_range is None:
            assert new <= old * (1 + 2.0**-20) * (1 + 2.0**-52)
            assert new >= old * (1 + 2.0**-21)
    assert type(cover.sensitivity) is type(sensitivity)
    assert cover.limits.shape == ((1, 3) if cells == 1 else (3, 1) if cells == 3 else (1, 1))


def test_bounds_at_the_ends_of_the_float_range() -> None:
    tiny = cover_decimals(FrobeniusBall(2.0**-1074, "replace"), (100, 100))
    assert tiny.limits.item() == 2.0**-1022
    assert bounds_of(tiny.sensitivity) == [2.0**-1074 * 101]
    huge = cover_decimals(FrobeniusBall(1e305, "replace"), (1, 1))
    assert huge.limits.item() == np.finfo(float).max


def test_every_matrix_of_a_row_set_has_its_own_limits() -> None:
    cover = cover_decimals(RowBounds([1.0, 4.0], "replace"), (2, 4))
    fine = np.array([[2.0**31] * 4, [2.0**33] * 4])
    cover.check(MatrixFile(fine), "in.csv")
    with pytest.raises(InvalidParameterError, match="row 1, column 2: "):
        cover.check(MatrixFile(fine[::-1], index=["a", "b"]), "in.csv")


def test_the_position_and_the_limit_are_named_but_not_the_value() -> None:
    cover = cover_decimals(FrobeniusBall(1.0, "replace"), (2, 2), 1000.0)
    array = np.array([[1000.0, -1000.0], [0.0, -1000.5]])
    matrix = MatrixFile(array, columns=["a", "b"], index=["x", "y"])
    with pytest.raises(InvalidParameterError, match=r"in\.csv, row 3, column 3: .* 1000\.0") as no:
        cover.check(matrix, "in.csv")
    assert "1000.5" not in str(no.value)
    array[1, 1] = np.nan
    with pytest.raises(InvalidParameterError, match="row 3, column 3"):
        cover.check(matrix, "in.csv")


def test_bad_ranges_and_shapes_are_refused() -> None:
    for bad in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(InvalidParameterError, match="range="):
            cover_decimals(FrobeniusBall(1.0, "replace"), (2, 2), bad)
    with pytest.raises(ShapeError):
        cover_decimals(RowBox([1.0, 2.0], "replace"), (2, 3))
