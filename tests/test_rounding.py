"""Directed rounding: the closest float on the named side, by its definition."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from matrixdp.rounding import (
    float_down,
    float_up,
    quotient_down,
    quotient_up,
    shown_down,
    shown_exactly,
    shown_up,
    sqrt_down,
    sqrt_up,
)

numerators = st.integers(0, 10**60)
denominators = st.integers(1, 10**60)
floats = st.floats(1e-150, 1e150)


@given(numerators, denominators)
def test_floats_enclose_a_rational(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    below, above = float_down(value), float_up(value)
    assert Fraction(below) <= value <= Fraction(above)
    assert above in (below, math.nextafter(below, math.inf))


@given(numerators, denominators)
def test_roots_enclose_a_root(numerator: int, denominator: int) -> None:
    value = Fraction(numerator, denominator)
    below, above = sqrt_down(value), sqrt_up(value)
    assert Fraction(below) ** 2 <= value <= Fraction(above) ** 2
    assert above in (below, math.nextafter(below, math.inf))


@given(st.floats(0, 1e300))
def test_the_root_of_a_square_is_exact(root: float) -> None:
    square = Fraction(root) ** 2
    assert sqrt_down(square) == sqrt_up(square) == root


@given(floats, floats)
def test_quotients_enclose(dividend: float, divisor: float) -> None:
    below, above = quotient_down(dividend, divisor), quotient_up(dividend, divisor)
    assert Fraction(below) * Fraction(divisor) <= Fraction(dividend)
    assert Fraction(above) * Fraction(divisor) >= Fraction(dividend)
    assert above in (below, math.nextafter(below, math.inf))


@given(st.floats(0, 1e300), st.integers(1, 17))
def test_shown_digits_enclose(value: float, digits: int) -> None:
    below, above = float(shown_down(value, digits)), float(shown_up(value, digits))
    assert below <= value <= above
    if value > 1e-300:
        assert above - below <= 2 * value * 10.0 ** (1 - digits)


@given(st.integers(0, 2**32), st.integers(1, 17))
def test_shown_digits_enclose_subnormal_numbers(steps: int, digits: int) -> None:
    value = steps * 2.0**-1074
    assert float(shown_down(value, digits)) <= value <= float(shown_up(value, digits))


@given(st.floats(0, 1e300))
def test_a_number_shown_exactly_reads_back(value: float) -> None:
    assert float(shown_exactly(value)) == value


def test_what_was_written_is_shown_as_written() -> None:
    for text in ("1e-05", "0.1", "1", "1e-06", "0.268051"):
        assert shown_up(float(text)) == shown_down(float(text)) == text
