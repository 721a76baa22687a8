"""Decimal numbers as people write them, and the float64 that stands for each.

Most decimals have no float64 of the same value: 0.1 becomes a number slightly above one tenth, 0.3
one slightly below. The caller therefore says what should happen to the difference.
"""

import decimal
import math
from collections.abc import Callable, Mapping
from typing import Literal

__all__ = ["READERS", "Decimals", "exact_float", "grouped_float", "nearest_float", "upper_float"]

Decimals = Literal["nearest", "exact", "up"]
"""How decimals become floats: to the nearest, only without a change, or to the next one above."""


def nearest_float(text: str) -> float:
    """Return the float64 nearest to a decimal.

    Raises
    ------
    ValueError
        If the text is not a decimal number, or is too large for a float64.

    Examples
    --------
    >>> nearest_float(" 1.5e3 ")
    1500.0
    """
    # Python would read 1_000, but in a data file an underscore is more likely a slip.
    if "_" in text:
        raise ValueError("not a number")
    number = float(text)
    # "nan" and "inf" are words for Python too; 1e999 becomes infinite.
    if not math.isfinite(number):
        raise ValueError("not a number of float64")
    return number


def grouped_float(text: str, *, decimal: str, thousands: str | None) -> float:
    """Return the float64 nearest to a decimal that is written with other characters.

    Parameters
    ----------
    text : str
        Digits may be in groups of three in front of the decimals, all of them or none.
    decimal, thousands : str
        What stands before the decimals, and between groups.

    Raises
    ------
    ValueError
        If the text is not such a number.

    Examples
    --------
    >>> grouped_float("-1.234.567,5", decimal=",", thousands=".")
    -1234567.5
    >>> grouped_float("1.5", decimal=",", thousands=".")
    Traceback (most recent call last):
        ...
    ValueError: not a number with digits in groups of three
    """
    whole, point, decimals = text.strip().partition(decimal)
    if thousands is not None and thousands in whole:
        first, *groups = whole.lstrip("+-").split(thousands)
        sizes_fit = 1 <= len(first) <= 3 and all(len(group) == 3 for group in groups)
        digits = [first, *groups]
        if not (sizes_fit and all(part.isascii() and part.isdecimal() for part in digits)):
            raise ValueError("not a number with digits in groups of three")
        whole = whole.replace(thousands, "")
    if decimal != "." and "." in whole + decimals:
        raise ValueError("not a number with these decimals")
    return nearest_float(f"{whole}.{decimals}" if point else whole)


def exact_float(text: str) -> float:
    """Return the float64 that is equal to a decimal.

    Raises
    ------
    ValueError
        If there is none, or the text is not a decimal number.

    Examples
    --------
    >>> exact_float("0.375")
    0.375
    >>> exact_float("3.00000000000000000001")
    Traceback (most recent call last):
        ...
    ValueError: not equal to any float64
    """
    number = nearest_float(text)
    if decimal.Decimal(number) != _exact_value(text):
        raise ValueError("not equal to any float64")
    return number


def upper_float(text: str) -> float:
    """Return the smallest float64 that is at least a decimal: for bounds, which must not shrink.

    Raises
    ------
    ValueError
        If the text is not a decimal number, or is too large for a float64.

    Examples
    --------
    >>> upper_float("0.3"), upper_float("0.1")
    (0.30000000000000004, 0.1)
    """
    number = nearest_float(text)
    if decimal.Decimal(number) < _exact_value(text):
        number = math.nextafter(number, math.inf)
    if not math.isfinite(number):
        raise ValueError("not a number of float64")
    return number


READERS: Mapping[Decimals, Callable[[str], float]] = {
    "nearest": nearest_float,
    "exact": exact_float,
    "up": upper_float,
}
"""The function for each way to read decimals."""


def _exact_value(text: str) -> decimal.Decimal:
    """Return a decimal without rounding; `decimal.Decimal` is exact in making and in comparing.

    A fraction would be exact too, but ``1e-999999999`` would need a gigabyte.
    """
    try:
        return decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of more than 18 digits
        raise ValueError("not a number of float64") from None
