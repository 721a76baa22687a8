"""The parts of the tail's bounds, each against ball arithmetic, at few bits, where slack is scarce.

What is left out of a series is allowed for by a unit or more on either side, on top of roundings
that are outward already: so a bound must keep its distance from the truth, not only its side.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

import pytest
from flint import arb, ctx, fmpq

from matrixdp.noise.specification import normal_tail

BITS = range(8, 61)
SPARE = 1


def keeps_distance(bounds: tuple[int, int], truth: Any, distance: int = SPARE) -> bool:
    low, high = bounds
    return bool(truth >= low + distance and truth <= high - distance)


def in_units(number: Any, bits: int) -> Any:
    return number * arb(2) ** bits


def series(b: int, bits: int) -> Any:
    """``sum of (-1)**n b**(2n+1) / (2**n n! (2n+1)) = sqrt(pi/2) erf(b / sqrt(2))``."""
    ctx.prec = 400
    argument = arb(fmpq(b, 1 << bits)) / arb(2).sqrt()
    return in_units((arb.pi() / 2).sqrt() * argument.erf(), bits)


def arguments(bits: int) -> list[int]:
    """Return 60 arguments up to 5, the smallest ones among them."""
    return [1, 2, 3, *range(5, 5 << bits, max(1, (5 << bits) // 57))]


def series_holds() -> bool:
    return all(
        keeps_distance(normal_tail._series_bounds(b, bits), series(b, bits))
        for bits in BITS
        for b in arguments(bits)
    )


def arctangents_hold() -> bool:
    ctx.prec = 400
    return all(
        keeps_distance(
            normal_tail._arctangent_bounds(inverse, bits), in_units((arb(1) / inverse).atan(), bits)
        )
        for bits in BITS
        for inverse in (2, 3, 5, 239)
    )


def pi_holds() -> bool:
    """Each arctangent spares a unit: 16 of the one, 4 of the other."""
    ctx.prec = 400
    return all(
        keeps_distance(normal_tail._pi_bounds(bits), in_units(arb.pi(), bits), 20 * SPARE)
        for bits in BITS
    )


def root_holds() -> bool:
    """With the closest bounds of pi, so that the root's own rounding is seen."""
    ctx.prec = 400
    truth = (2 / arb.pi()).sqrt()
    return all(
        keeps_distance(normal_tail.root_two_over_pi.__wrapped__(bits), in_units(truth, bits), 0)
        for bits in BITS
    )


def closest_pi(bits: int) -> tuple[int, int]:
    ctx.prec = 400
    below = int(in_units(arb.pi(), bits).floor().unique_fmpz())
    return below, below + 1


def test_the_series_is_bounded() -> None:
    assert series_holds()


def test_pi_is_bounded() -> None:
    assert arctangents_hold()
    assert pi_holds()


def test_the_root_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert root_holds()
    monkeypatch.setattr(normal_tail, "_pi_bounds", closest_pi)
    assert root_holds()


def narrowed(function: Callable[..., tuple[int, int]], below: int, above: int) -> Any:
    """Return a function whose bounds lie closer together by so many units on each side."""

    def wrong(*given: int) -> tuple[int, int]:
        low, high = function(*given)
        return low + below, high - above

    return wrong


@pytest.mark.parametrize(("below", "above"), [(1, 0), (0, 1)])
@pytest.mark.parametrize(
    ("name", "holds"),
    [("_series_bounds", series_holds), ("_arctangent_bounds", arctangents_hold)],
)
def test_a_missing_unit_is_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, holds: Callable[[], bool], below: int, above: int
) -> None:
    monkeypatch.setattr(
        normal_tail, name, narrowed(getattr(normal_tail, name), below=below, above=above)
    )
    assert not holds()


def test_a_root_that_is_rounded_down_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal_tail, "_pi_bounds", closest_pi)
    monkeypatch.setattr(normal_tail, "isqrt", lambda number: isqrt(number) - 1)
    assert not root_holds()
