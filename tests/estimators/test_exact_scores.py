"""Exponentials that are the same wherever a number stands: each operation is rounded once."""

import math
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")

from estimators.examples import FloatArray
from matrixdp.estimators.exact_scores import exponentials, probabilities

LOG_2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
LOG_2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def powers() -> FloatArray:
    generator = np.random.default_rng(0)
    small = -generator.exponential(4.0, size=3000) * generator.choice([1e-9, 1.0, 30.0], size=3000)
    return np.concatenate([small, [0.0, -0.0, -5e-324, -math.log(2.0) / 2.0, -700.0, -699.9999]])


def one_by_one(power: float) -> float:
    """Return the exponential in Python's own floats, each operation of which is rounded once."""
    whole = round(power / 0.6931471805599453)
    rest = (power - whole * LOG_2_HIGH) - whole * LOG_2_LOW
    series = 0.0
    for order in range(13, -1, -1):
        series = series * rest + 1.0 / math.factorial(order)
    return math.ldexp(series, whole)


def test_every_bit_follows_from_operations_that_are_rounded_once() -> None:
    """The exponential of numpy fails this: it may treat the numbers of one array differently."""
    numbers = powers()[powers() >= -700.0]
    expected = [one_by_one(number) for number in numbers.tolist()]
    assert exponentials(numbers).tolist() == expected


def exact(power: float) -> Fraction:
    """Return ``exp(power)`` to a share of 1e-25, from the series of ``exp(power / 2**11)``."""
    part, total, term = Fraction(power) / 2**11, Fraction(1), Fraction(1)
    for order in range(1, 22):
        term = term * part / order
        total += term
    # Cut after every square: the least number here is 2**-1010, and 1390 bits of it are kept.
    for _ in range(11):
        total = Fraction(math.floor(total * total * 2**2400), 2**2400)
    return total


def test_the_numbers_are_those_of_the_exponential() -> None:
    numbers = powers()[-60:].tolist()
    found = exponentials(np.array(numbers)).tolist()
    for number, value in zip(numbers, found, strict=True):
        assert abs(Fraction(value) / exact(number) - 1) < Fraction(4, 2**53) or number < -700.0


def test_far_scores_have_no_probability_and_no_error() -> None:
    rows = np.array([[0.0, -700.1, -1e300], [-1e300, 1e300, 0.0], [5.0, 5.0, 5.0]])
    with np.errstate(all="raise"):
        found = probabilities(rows)
    np.testing.assert_array_equal(found[:2], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    np.testing.assert_allclose(found[2], 1.0 / 3.0)
