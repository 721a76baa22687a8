"""Bounds of changes of products, against exact rationals."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from matrixdp.queries import PublicBounds
from matrixdp.queries.products import cross_change, gram_change


def exact_square(x: PublicBounds, y: PublicBounds | None = None) -> Fraction:
    """Return the squared norm of the lengths of the ranges of ``x_i y_j``, or of ``x_i x_j``."""
    ranges = [
        [(Fraction(float(a)), Fraction(float(b))) for a, b in zip(*part.intervals, strict=True)]
        for part in (x, x if y is None else y)
    ]
    total = Fraction(0)
    for (i, first), (j, second) in product(enumerate(ranges[0]), enumerate(ranges[1])):
        corners = [a * b for a in first for b in second]
        if y is None and i == j:
            corners = [first[0] ** 2, first[1] ** 2]
            corners += [Fraction(0)] if first[0] <= 0 <= first[1] else []
        total += (max(corners) - min(corners)) ** 2
    return total


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("width", [2.0**-13, 0.1, 0.9])
def test_ranges_of_products_are_rounded_up(columns: int, width: float) -> None:
    # Narrow ranges far from 0: their lengths are small differences of large products.
    rng = np.random.default_rng(columns)
    for _ in range(30):
        upper = rng.uniform(0.5, 1.0, (2, columns)) * 10.0 ** rng.integers(-9, 9)
        x, y = (PublicBounds(columns, lower=u * (1.0 - width), upper=u) for u in upper)
        for bound, exact in (
            (gram_change((x,), "replace"), exact_square(x)),
            (cross_change(x, y, "replace"), exact_square(x, y)),
        ):
            assert bound**2 >= exact
            assert bound**2 <= exact * (1 + Fraction(1, 10**9))
