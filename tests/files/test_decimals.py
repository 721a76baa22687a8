"""Decimals of text as floats: to the nearest, exactly, or upwards."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp.files.formats.decimals import exact_float, nearest_float, upper_float

DECIMALS = st.builds(
    "{}{}.{}e{}".format,
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**25),
    st.integers(0, 10**25),
    st.integers(-345, 250),
)


@given(DECIMALS)
def test_upwards_is_the_least_float_above(text: str) -> None:
    number = upper_float(text)
    assert Fraction(number) >= Fraction(text)
    assert Fraction(math.nextafter(number, -math.inf)) < Fraction(text)


@given(DECIMALS)
def test_exactly_or_not_at_all(text: str) -> None:
    try:
        number = exact_float(text)
    except ValueError:
        assert Fraction(nearest_float(text)) != Fraction(text)
    else:
        assert Fraction(number) == Fraction(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_all_digits_of_a_float_are_exact(number: float) -> None:
    text = f"{number:.1100f}"
    assert exact_float(text) == upper_float(text) == nearest_float(text) == number


@pytest.mark.parametrize("reader", [nearest_float, exact_float, upper_float])
@pytest.mark.parametrize(
    "text", ["", "x", "1_000", "nan", "inf", "-Infinity", "1e999", "9" * 5000, "1,5", "0x10", "1/3"]
)
def test_what_is_not_a_finite_number_is_refused(reader: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match=r"float|number"):
        reader(text)


def test_extreme_exponents_cost_nothing() -> None:
    assert nearest_float("1e-99999999999999999999") == 0.0
    assert upper_float("1e-999999999") == 5e-324
    assert upper_float("-1e-999999999") == 0.0
    for text in ("1e-999999999", "1e-99999999999999999999"):
        with pytest.raises(ValueError, match="float64"):
            exact_float(text)
    with pytest.raises(ValueError, match="float64"):
        upper_float("1.79769313486231575e308")
