r"""Many steps together, in ball arithmetic: an enclosure of delta for any list of steps.

With M the product of all ``E_P[e^(sL)]``, ``s = theta + i w`` and any theta > 0,

    f(t) = delta(t) e^(theta t)    has the Fourier transform    F(w) = M(s) / (s (s + 1)).

Three sums replace integrals. What each leaves out is proven and added to the ball:

1. *The line.* ``(h/2 pi) sum_n F(nh) e^(-inht)`` is, by Poisson's formula, the sum of ``f(t + k
   period)`` over all whole k, with ``period = 2 pi/h``. No term is negative, delta is at most 1,
   and ``delta(t) <= M(r) e^(-rt)`` for every r > 0: this bounds the terms other than k = 0.
2. *The end of the line.* ``M = integral phi(x) A^(1+s) B^(-s) dx``, with the densities of
   `Pair`, may be taken along ``x + i y`` with ``y = s^2 angle`` and ``0 < angle < pi``. There the
   loss has an imaginary part ``arg A - arg B >= 0``, so that |M| is at most an integral of
   positive numbers which falls with w. Its value at the last node bounds all that is left out.
3. *M itself* is a trapezoidal sum along such a line, half-way up a strip in which the integrand is
   analytic. On its edges it is at most ``growth(angle)`` times that of M(theta) for *every* w >= 0,
   since |A| is at most, and |B| at least ``cos(angle/2)`` times, its value on the real line. So
   the error is at most ``(1 + growth) M(theta) / (exp(2 pi y / step) - 1)`` for all w at once.

Where nodes are cut off, ``A^(1+theta) <= 1 - q + q r^(1+theta)`` (convexity), and ``B^(-theta)`` is
at most ``r^(-q theta)`` (means) and ``(1-q)^(-theta)``: sums of normal tails.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import acb, acb_mat, arb, ctx

from reference.ball import normal_tail
from reference.loss_truth import Pair

_BITS = 160  # of precision: far more than the errors that are left out on purpose
_FOR_VALUES, _FOR_BOUNDS = 75.0, 25.0  # logarithms of what may be left out of M(theta)
_NEGLIGIBLE = 40.0  # what the line leaves out, relative to delta: about e^-40
_HALVINGS = 7
# Over theta: exponents that may bound the periods above.
_FARTHER = (1.03, 1.1, 1.25, 1.5)
_MOST_NODES = 4_000_000


@dataclass(frozen=True)
class Release:
    """A Gaussian release: its generating function is known."""

    mu: float

    def value(self, s: acb) -> acb:
        return (s * (s + 1) * arb(self.mu) ** 2 / 2).exp()


Part = tuple[Pair | Release, int]


@dataclass(frozen=True)
class Strip:
    """The strip of the plane, from the real line up, along which one pair is summed up."""

    pair: Pair
    theta: float
    angle: float  # of the upper edge, over s^2; below pi, where the branch points are
    accuracy: float  # about e^-accuracy of M(theta) is left out

    @classmethod
    def below(cls, pair: Pair, theta: float, halvings: int) -> "Strip":
        """Choose one as high as costs e^8 of size, or lower ones, which only bound the decay."""
        stiffness = pair.multiplier**2 + (theta / 4 if pair.has_lower else 0.0)
        angle = min(2.5, math.sqrt(16.0 / stiffness)) / 2**halvings
        return cls(pair, theta, angle, _FOR_BOUNDS if halvings else _FOR_VALUES)

    def growth(self, angle: arb) -> arb:
        """Return how much larger the integrand is at this height than on the real line, at most."""
        grown = (arb(self.pair.multiplier) ** 2 * angle * angle / 2).exp()
        return grown / (angle / 2).cos() ** self.theta if self.pair.has_lower else grown

    def term(self, point: acb) -> tuple[acb, acb]:
        """Return ``phi A^(1+theta) B^(-theta)`` and the loss at a point."""
        upper, lower = self.pair.densities(point)
        scale, theta = arb(self.pair.multiplier), arb(self.theta)
        up, down = upper.log(), lower.log()
        exponent = -(point * point) / (2 * scale * scale) + (1 + theta) * up - theta * down
        return exponent.exp() / (scale * (2 * arb.pi()).sqrt()), up - down

    def ends(self, reach: float) -> tuple[float, float]:
        """Return an interval beyond whose ends the bounds of `outside` fall."""
        last = 1.0 + self.theta if self.pair.has_upper else 0.0
        pulled = self.theta * self.pair.rate if self.pair.has_lower else 0.0
        room = reach * self.pair.multiplier
        return -room, last + pulled + room

    def outside(self, low: arb, high: arb) -> arb:
        """Return a bound of the integral over all reals outside, and of a sum of its falling terms.

        It is that on the real line. Both bounds of ``B^(-theta)`` hold, so the lesser does.
        """
        rate = arb(self.pair.rate)
        bounds = [self._outside(low, high, pull=rate, front=arb(1))]
        if self.pair.has_lower and self.pair.rate < 1.0:
            front = (1 - rate) ** (-arb(self.theta))
            bounds.append(self._outside(low, high, pull=arb(0), front=front))
        return bounds[0].min(bounds[-1]).upper()

    def _outside(self, low: arb, high: arb, *, pull: arb, front: arb) -> arb:
        """Sum ``front w e^((k x - m)/s^2)`` times the density of the noise, k the centre."""
        theta, rate, scale = arb(self.theta), arb(self.pair.rate), arb(self.pair.multiplier)
        drawn = theta * pull if self.pair.has_lower else arb(0)
        powers = [(1 - rate, arb(0)), (rate, 1 + theta)] if self.pair.has_upper else [(1, arb(0))]
        total = arb(0)
        for weight, power in powers:
            centre = power + drawn
            # The constant: e^(-power/2 + drawn/2), and e^(centre^2/2) of completing the square.
            size = ((centre * centre - power + drawn) / (2 * scale * scale)).exp()
            tails = normal_tail((high - centre) / scale) + normal_tail((centre - low) / scale)
            total += front * weight * size * tails
        return total


@dataclass(frozen=True)
class Nodes:
    """A trapezoidal sum half-way up a strip, and a bound of what it leaves out at any w >= 0."""

    weights: list[acb]
    losses: list[acb]
    left_out: arb


@functools.lru_cache(maxsize=64)
def nodes(strip: Strip) -> Nodes:
    """Choose the step and the ends for the accuracy that is wanted, and prove it."""
    angle = arb(strip.angle)
    height = arb(strip.pair.multiplier) ** 2 * angle / 2
    edges = 1 + strip.growth(angle)
    step = arb(float((2 * arb.pi() * height / (edges.log() + strip.accuracy)).mid()))
    weights, losses, cut = _terms(strip, step, height)
    error = edges / ((2 * arb.pi() * height / step).exp() - 1)
    # Of M(theta) only the sum is known so far: M (1 - error) <= sum + cut.
    largest = (abs(sum(weights, acb(0))) + cut) / (1 - error)
    return Nodes(weights, losses, (error * largest + cut).upper())


def _terms(strip: Strip, step: arb, height: arb) -> tuple[list[acb], list[acb], arb]:
    """Return terms times step, losses, and a bound of the terms that are cut off."""
    reach, growth = math.sqrt(2 * strip.accuracy), strip.growth(arb(strip.angle) / 2)
    while True:
        low, high = strip.ends(reach)
        first, last = math.floor(low / float(step.mid())), math.ceil(high / float(step.mid()))
        terms = [strip.term(acb(index * step, height)) for index in range(first, last + 1)]
        largest = max(terms, key=lambda term: float(abs(term[0]).log().mid()))[0]
        # Falling terms: their sum is at most the integral from the last one that is kept.
        cut = (growth * strip.outside(first * step, last * step)).upper()
        if bool(cut < abs(largest) * step * arb(-strip.accuracy).exp()):
            return [term[0] * step for term in terms], [term[1] for term in terms], cut
        reach *= 1.3


def generating_function(pair: Pair, theta: float, spacing: arb, count: int) -> list[acb]:
    """Return enclosures of M(theta + i n spacing) for n = 0 .. count - 1."""
    found = nodes(Strip.below(pair, theta, halvings=0))
    left_out = acb(arb(0, found.left_out), arb(0, found.left_out))
    sums = _power_sums(found.weights, found.losses, spacing, count)
    return [value + left_out for value in sums]


def _power_sums(weights: list[acb], losses: list[acb], spacing: arb, count: int) -> list[acb]:
    """Return the sums of ``weight e^(i n spacing loss)`` by one product of matrices."""
    block = math.isqrt(count - 1) + 1
    turns = [acb(0, spacing) * loss for loss in losses]
    coarse = acb_mat(
        [
            [
                weight * (turn * (block * row)).exp()
                for weight, turn in zip(weights, turns, strict=True)
            ]
            for row in range(block)
        ]
    )
    fine = acb_mat([[(turn * column).exp() for column in range(block)] for turn in turns])
    return list(itertools.islice((coarse * fine).entries(), count))


def decay(part: Pair | Release, theta: float, frequency: arb) -> arb:
    """Return a bound of |M(theta + i w)| for all w >= frequency.

    The integrand's size is again an analytic function of x: the geometric mean of the integrand at
    x + iy and of its mirror image at x - iy. In a strip of half-width y around the real line it is
    at most ``sqrt(growth)`` times that of M(theta), so that the same nodes serve, with an error of
    at most ``2 sqrt(growth) <= 1 + growth``. High strips are best for a few steps, low for many.
    """
    if isinstance(part, Release):
        return abs(part.value(acb(theta, frequency)))
    least = arb.pos_inf()
    for halvings in range(_HALVINGS):
        found = nodes(Strip.below(part, theta, halvings))
        pairs = zip(found.weights, found.losses, strict=True)
        sizes = (abs(weight) * (-frequency * loss.imag).exp() for weight, loss in pairs)
        bound = (sum(sizes, arb(0)) + found.left_out).upper()
        if not bool(bound < least):
            break  # still lower strips are worse, and have more nodes
        least = bound
    return least


def composed_delta(parts: Sequence[Part], epsilon: float) -> arb:
    """Return an enclosure of the delta of all parts together, at an epsilon of at least 0."""
    with ctx.workprec(_BITS):
        line = _chosen_line(parts, epsilon)
        total = arb(0)
        for index, value in enumerate(_product(parts, line)):
            s = acb(line.theta, index * line.spacing)
            term = value * (-s * arb(epsilon)).exp() / (s * (s + 1))
            total += term.real if index == 0 else 2 * term.real
        found = total * line.spacing / (2 * arb.pi())
        found += arb(0, _end_of_line(parts, line, epsilon).upper())
        # The other periods add to the sum, and never take away.
        return found - _other_periods(parts, line, epsilon).union(arb(0))


@dataclass(frozen=True)
class _Line:
    theta: float
    farther: float  # the exponent that bounds the periods above
    spacing: arb
    count: int

    @property
    def last(self) -> arb:
        """The frequency of the last node."""
        return (self.count - 1) * self.spacing


def _product(parts: Sequence[Part], line: _Line) -> list[acb]:
    """Return M at every node of the line."""
    product = [acb(1)] * line.count
    for part, steps in parts:
        if isinstance(part, Release):
            points = (acb(line.theta, index * line.spacing) for index in range(line.count))
            values = [part.value(s) for s in points]
        else:
            values = generating_function(part, line.theta, line.spacing, line.count)
        product = [old * value**steps for old, value in zip(product, values, strict=True)]
    return product


def _log_moment(parts: Sequence[Part], theta: float) -> arb:
    """Return log M(theta)."""
    nothing = _Line(theta=theta, farther=math.inf, spacing=arb(0), count=1)
    return _product(parts, nothing)[0].real.log()


def _end_of_line(parts: Sequence[Part], line: _Line, epsilon: float) -> arb:
    """Return a bound of the nodes beyond the last: there |F| is at most decay / w^2."""
    bound = (-arb(line.theta) * arb(epsilon)).exp() / (arb.pi() * line.last)
    for part, steps in parts:
        bound *= decay(part, line.theta, line.last) ** steps
    return bound


def _other_periods(parts: Sequence[Part], line: _Line, epsilon: float) -> arb:
    """Return a bound of ``delta(t + k period) e^(theta k period)``, summed over k other than 0."""
    theta, farther = arb(line.theta), arb(line.farther)
    period = 2 * arb.pi() / line.spacing
    below = 1 / ((theta * period).exp() - 1)
    moment = (_log_moment(parts, line.farther) - farther * arb(epsilon)).exp()
    above = moment / (((farther - theta) * period).exp() - 1)
    return below + above


def _chosen_line(parts: Sequence[Part], epsilon: float) -> _Line:
    """Choose a line through the saddle. Whatever is chosen, the enclosure is one."""
    theta = _falling(lambda theta: _level(parts, theta, epsilon))
    level = _level(parts, theta, epsilon)

    def above(exponent: float) -> float:
        moment = float(_log_moment(parts, exponent).mid()) - exponent * epsilon
        return (_NEGLIGIBLE - level + moment) / (exponent - theta)

    period, farther = min((above(ratio * theta), ratio * theta) for ratio in _FARTHER)
    spacing = arb(2 * math.pi / max(period, (_NEGLIGIBLE - level) / theta))
    count = 16
    while count <= _MOST_NODES:
        line = _Line(theta=theta, farther=farther, spacing=spacing, count=count)
        if float(_end_of_line(parts, line, epsilon).log().mid()) < level - _NEGLIGIBLE:
            return line
        count += count // 2
    raise ArithmeticError("the generating function falls too slowly: add a Gaussian release")


def _level(parts: Sequence[Part], theta: float, epsilon: float) -> float:
    """Return the logarithm of the integrand on the real line, about that of delta at its least."""
    moment = float(_log_moment(parts, theta).mid())
    return moment - theta * epsilon - math.log(theta) - math.log1p(theta)


def _falling(value: Callable[[float], float]) -> float:
    """Return where a convex function is about the least."""
    theta, ratio = 1.0, 2.0
    best = value(theta)
    while abs(ratio - 1.0) > 0.05:
        for factor in (ratio, 1.0 / ratio):
            while (tried := value(theta * factor)) < best:
                theta, best = theta * factor, tried
        ratio = math.sqrt(ratio)
    return theta


def is_below(parts: Sequence[Part], epsilon: float, delta: arb) -> bool:
    """Return whether ``delta(t) <= M(r) e^(-rt)`` proves for some r that it is below the given one.

    Losses may be bounded, as those of adding are. Beyond the largest there is no saddle.
    """
    with ctx.workprec(_BITS):
        exponent, last = 1.0, math.inf
        while True:
            bound = _log_moment(parts, exponent) - arb(exponent) * arb(epsilon)
            if bool(bound < delta.lower().log()):
                return True
            if not float(bound.mid()) < last:
                return False
            exponent, last = 2.0 * exponent, float(bound.mid())


def epsilon_near(parts: Sequence[Part], delta: float) -> float:
    """Return an epsilon whose delta is within a few orders of magnitude of the given one."""
    with ctx.workprec(_BITS):

        def bound(theta: float) -> float:
            # The integrand is about theta wide: delta is about theta times its largest value.
            log_delta = _level(parts, theta, 0.0) + math.log(theta)
            return (log_delta - math.log(delta)) / theta

        return bound(_falling(bound))
