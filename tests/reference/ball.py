"""The privacy curve in ball arithmetic: an enclosure of the truth, made by another library.

Every function works on the exact real numbers that its float arguments are, and raises its working
precision until the answer is decided or narrow.
"""

import math
from collections.abc import Callable
from typing import TypeVar

from flint import arb, ctx

_Found = TypeVar("_Found")

_MOST_BITS = 40_000
_NARROW = -90  # log2 of the relative radius that counts as narrow


def normal_tail(point: arb) -> arb:
    """Return Phi(-point)."""
    return (point / arb(2).sqrt()).erfc() / 2


def normal_density(point: arb) -> arb:
    return (-(point * point) / 2).exp() / (2 * arb.pi()).sqrt()


def curve(mu: arb, epsilon: arb) -> arb:
    """Return g(mu; epsilon) exactly as Balle and Wang write it, at the current precision."""
    centre, half = epsilon / mu, mu / 2
    return normal_tail(centre - half) - epsilon.exp() * normal_tail(centre + half)


def delta_minus(mu: float, epsilon: float, delta: float, stretch: str = "1") -> int:
    """Return the sign of g(mu * stretch; epsilon) - delta; stretch is a decimal, taken exactly."""
    return _decided(lambda: curve(arb(mu) * arb(stretch), arb(epsilon)) - arb(delta))


def epsilon_side(mu: float, epsilon: float, delta: float) -> int:
    """Return the sign of (the true epsilon at delta) - epsilon, for epsilon >= 0."""
    return _decided(lambda: curve(arb(mu), arb(epsilon)) - arb(delta))


def true_delta(mu: float, epsilon: float) -> arb:
    """Return a narrow enclosure of g(mu; epsilon) for mu > 0, or any below the smallest double."""
    return narrow(lambda: curve(arb(mu), arb(epsilon)), vanishing=math.ulp(0.0))


def delta_condition(mu: float, epsilon: float) -> float:
    """Return 1 + [mu phi(a) + epsilon exp(epsilon) Phi(-b)] / delta."""

    def condition() -> arb:
        size, loss = arb(mu), arb(epsilon)
        lower, upper = loss / size - size / 2, loss / size + size / 2
        change = size * normal_density(lower) + loss * loss.exp() * normal_tail(upper)
        return 1 + change / curve(size, loss)

    return float(narrow(condition).mid())


def epsilon_condition(mu: float, epsilon: float, delta: float) -> float:
    """Return epsilon times its condition number (finite also at epsilon = 0)."""

    def condition() -> arb:
        size, loss, share = arb(mu), arb(epsilon), arb(min(delta, 1.0 - delta))
        lower, upper = loss / size - size / 2, loss / size + size / 2
        change = size * normal_density(lower) + share
        return loss + change / (loss.exp() * normal_tail(upper))

    return float(narrow(condition).mid())


def true_bound(epsilon: float, delta: float) -> arb:
    """Return B by Algorithm 2 of the paper, line by line, without the stray T; epsilon > 0.

    With delta_0 = Phi(0) - exp(epsilon) Phi(-sqrt(2 epsilon)): for delta >= delta_0 the largest v
    with Phi(sqrt(epsilon v)) - exp(epsilon) Phi(-sqrt(epsilon (v + 2))) <= delta, else the smallest
    u with Phi(-sqrt(epsilon u)) - exp(epsilon) Phi(-sqrt(epsilon (u + 2))) <= delta; then
    B = sqrt(2 epsilon) / alpha with alpha = sqrt(1 + w/2) -+ sqrt(w/2).
    """
    saved, ctx.prec = ctx.prec, 600
    try:
        loss, target = arb(epsilon), arb(delta)

        def second(w: arb) -> arb:
            return loss.exp() * normal_tail((loss * (w + 2)).sqrt())

        above = bool(arb(1) / 2 - second(arb(0)) <= target)
        side = -1 if above else 1

        def value(w: arb) -> arb:
            return normal_tail(side * (loss * w).sqrt()) - second(w)

        inside = value if above else lambda w: -value(w)
        level = target if above else -target
        low, high = arb(0), arb(1)
        while bool(inside(high) <= level):
            high = 2 * high
        for _ in range(220):
            middle = arb(((low + high) / 2).mid())
            if bool(inside(middle) <= level):
                low = middle
            else:
                high = middle
        root = (low + high) / 2
        alpha = (1 + root / 2).sqrt() + side * (root / 2).sqrt()
        return (2 * loss).sqrt() / alpha
    finally:
        ctx.prec = saved


def _decided(difference: Callable[[], arb]) -> int:
    def sign(ball: arb) -> int | None:
        return 1 if bool(ball > 0) else -1 if bool(ball < 0) else None

    return _with_more_bits(difference, sign)


def narrow(enclosure: Callable[[], arb], vanishing: float = 0.0) -> arb:
    """Return an enclosure that is narrow, or that is below a number which counts as nothing."""

    def accepted(ball: arb) -> arb | None:
        relative = bool(ball.rad() < abs(arb(ball.mid())) * arb(2) ** _NARROW)
        return ball if relative or bool(abs(ball) < vanishing) else None

    return _with_more_bits(enclosure, accepted)


def _with_more_bits(compute: Callable[[], arb], accept: Callable[[arb], _Found | None]) -> _Found:
    saved, bits = ctx.prec, 256
    try:
        while bits <= _MOST_BITS:
            ctx.prec = bits
            found = accept(compute())
            if found is not None:
                return found
            bits *= 2
    finally:
        ctx.prec = saved
    raise ArithmeticError(f"not decided with {_MOST_BITS} bits")
