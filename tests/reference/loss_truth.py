r"""One Gaussian step on a Poisson sample, in closed form and in ball arithmetic.

With ``A(x) = 1 - q + q exp((x - 1/2)/s^2)`` and ``B(x) = A(-x)``, each direction is a pair of
densities over the noise density N(0, s^2):

- *remove*: (A, 1), the record was there;
- *add*: (1, B), the same pair mirrored and exchanged;
- *replace*: (A, B), each record's contribution bounded by 1, the two of them opposite.

The loss ``log(P/Q)`` rises with x in all of them, so that ``delta(epsilon) = P(x > t) - e^epsilon
Q(x > t)`` where t is the point at which the loss is epsilon. A ball around t suffices: whatever
number in it is t, the value is enclosed. Nothing here is shared with the library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flint import acb, arb

from reference.ball import narrow, normal_tail

Direction = Literal["remove", "add", "replace"]

ADD_REMOVE: tuple[Direction, ...] = ("remove", "add")
REPLACE: tuple[Direction, ...] = ("replace",)
_BISECTIONS = 200


@dataclass(frozen=True)
class Pair:
    """One step: noise multiplier s over the bound of one contribution, rate q, direction."""

    multiplier: float
    rate: float
    direction: Direction

    @property
    def has_upper(self) -> bool:
        """Whether the first density is a mixture, A instead of 1."""
        return self.direction != "add"

    @property
    def has_lower(self) -> bool:
        """Whether the second density is a mixture, B instead of 1."""
        return self.direction != "remove"

    def densities(self, point: acb) -> tuple[acb, acb]:
        """Return both densities over that of the noise."""
        return (
            self._mixture(point) if self.has_upper else acb(1),
            self._mixture(-point) if self.has_lower else acb(1),
        )

    def _mixture(self, point: acb) -> acb:
        rate, spread = arb(self.rate), arb(self.multiplier) ** 2
        return (1 - rate) + rate * ((point - arb(0.5)) / spread).exp()


def one_step_delta(pair: Pair, epsilon: float) -> arb:
    """Return a narrow enclosure of delta, or any below the smallest double."""
    return narrow(lambda: delta_ball(pair, arb(epsilon)), vanishing=math.ulp(0.0))


def largest_delta(directions: Sequence[Direction], multiplier: float, rate: float, e: float) -> arb:
    """Return delta at epsilon = e of the worst of several directions."""
    found = [one_step_delta(Pair(multiplier, rate, each), e) for each in directions]
    worst = found[0]
    for other in found[1:]:
        worst = worst.max(other)
    return worst


def one_step_epsilon(directions: Sequence[Direction], s: float, q: float, delta: float) -> arb:
    """Return an enclosure of the least epsilon >= 0 whose delta is not above the given one."""

    def protects(epsilon: float) -> bool:
        # Undecided counts as no: the enclosure then starts below epsilon, and is still one.
        return bool(largest_delta(directions, s, q, epsilon) <= arb(delta))

    low, high = 0.0, 1.0
    if protects(low):
        return arb(0)
    while not protects(high):
        low, high = high, 2.0 * high
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if protects(middle) else (middle, high)
    return arb(math.nextafter(low, -math.inf)).union(arb(high))


def delta_ball(pair: Pair, epsilon: arb) -> arb:
    """Return delta at any real epsilon, also a negative one, at the current precision."""
    threshold = _threshold(pair, epsilon)
    if threshold is None:  # the loss is above epsilon everywhere, or nowhere
        return (1 - epsilon.exp()).max(arb(0))
    first, second = _mass_above(pair, threshold)
    return first - epsilon.exp() * second


def _mass_above(pair: Pair, threshold: arb) -> tuple[arb, arb]:
    """Return P(x > t) and Q(x > t)."""
    rate, scale = arb(pair.rate), arb(pair.multiplier)
    plain = normal_tail(threshold / scale)
    shifted, mirrored = (normal_tail((threshold + move) / scale) for move in (-1, 1))
    first = (1 - rate) * plain + rate * shifted if pair.has_upper else plain
    second = (1 - rate) * plain + rate * mirrored if pair.has_lower else plain
    return first, second


def _threshold(pair: Pair, epsilon: arb) -> arb | None:
    """Return the point where the loss is epsilon, or None if there is none."""
    spread, rate = arb(pair.multiplier) ** 2, arb(pair.rate)
    if pair.direction == "replace":
        return spread * _replace_root(pair, epsilon).log()
    sign = 1 if pair.direction == "remove" else -1
    # exp((sign x - 1/2)/s^2), which has to be positive
    ratio = 1 + (sign * epsilon).expm1() / rate
    if bool(ratio <= 0):
        return None
    if not bool(ratio > 0):
        return arb.nan()  # undecided: more bits are needed
    return sign * (arb(0.5) + spread * ratio.log())


def _replace_root(pair: Pair, epsilon: arb) -> arb:
    """Return y = exp(x/s^2) with ``(1-q) + q c y = e^epsilon ((1-q) + q c/y)``, c = e^(-1/2s^2)."""
    rate, odds = arb(pair.rate), epsilon.exp()
    weight = rate * (-1 / (2 * arb(pair.multiplier) ** 2)).exp()
    rest = (1 - rate) * epsilon.expm1()
    root = (rest * rest + 4 * weight * weight * odds).sqrt()
    if bool(rest >= 0):
        return (rest + root) / (2 * weight)
    return 2 * weight * odds / (root - rest)  # the same without cancellation
