r"""Delta of many sampled steps by the inversion integral in long doubles: another way to a number.

    delta(epsilon) = 1/(2 pi) int e^(K(z) - z epsilon) / (z (z + 1)) ds,    z = theta + i s,

with K by trapezoidal sums along the real line, and the integral by one, too. Nothing is proven
about it: it is done twice, with different spacings, and says how far apart the two results are.
It shares no code with the library.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.longdouble]
Real: Any = np.longdouble
Complex: Any = np.clongdouble

PRECISE = bool(np.finfo(np.longdouble).eps < 2e-19)
"""Whether long doubles are longer than doubles here."""

_PI = Real("3.14159265358979323846264338327950288")
_MOST = 1_000_000  # values of exp
_NEGLIGIBLE = 75.0  # an exponent, of masses
_END = 46.0  # an exponent, where the integral ends
_AWAY = 70.0  # an exponent, of other periods


class Step(NamedTuple):
    """Steps of one kind: the rate, the bound over the noise, and how many."""

    rate: float
    nu: float
    number: int


class LogDelta(NamedTuple):
    """The logarithm of delta, and how far it may be off, roughly."""

    value: float
    off: float


def log_ratio(u: Longs, step: Step) -> Longs:
    """Return ``log(1 - q + q e^(nu u - nu^2/2))``."""
    rate, nu = Real(step.rate), Real(step.nu)
    t = nu * u - nu * nu / 2
    near = np.log1p(rate * np.expm1(np.minimum(t, Real(40))))
    far = t + np.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(t, Real(40))))
    found: Longs = np.where(t < 40, near, far)
    return found


def losses_of(u: Longs, step: Step, direction: str) -> Longs:
    """Return the loss at u."""
    ratio = log_ratio(u, step)
    if direction == "replace":
        return ratio - log_ratio(-u, step)
    return ratio if direction == "remove" else -ratio


def log_masses(u: Longs, step: Step, direction: str, theta: Any) -> Longs:
    """Return the logarithm of the density of P, tilted."""
    logs = -u * u / 2 - np.log(2 * _PI) / 2
    if direction != "add":
        logs = logs + log_ratio(u, step)
    found: Longs = logs + theta * losses_of(u, step, direction)
    return found


def log_delta(
    steps: Sequence[Step], mu: float, epsilon: float, direction: str, theta: float
) -> LogDelta | None:
    """Return the logarithm of delta of steps and a release, or None if it would take too long."""
    whole = _Whole(steps, Real(mu), direction, Real(theta))
    end = whole.end()
    if end is None:
        return None
    found = [whole.integral(Real(epsilon), end, factor) for factor in (1.0, 1.31)]
    if any(each is None or not each > 0 for each in found):
        return None
    value = np.log(found[1]) + whole.log_factor - whole.theta * Real(epsilon)
    apart = abs(float((found[0] - found[1]) / found[1]))
    rounding = 1e-18 / float(found[1]) + 3e-18 * sum(step.number for step in steps)
    return LogDelta(float(value), apart + rounding + 1e-14 + 3e-15 * abs(float(value)))


class _Whole:
    """All steps, tilted."""

    def __init__(self, steps: Sequence[Step], mu: Any, direction: str, theta: Any) -> None:
        self.steps, self.mu, self.direction, self.theta = steps, mu, direction, theta
        self.kinds: list[tuple[Longs, Longs]] = []
        self.nodes = 0
        self.resolve(1.0)
        square = mu * mu
        self.log_factor = square * theta * (theta + 1) / 2
        for step, (weights, losses), largest in self._parts():
            total = weights.sum()
            mean = (weights * losses).sum() / total
            square = square + step.number * (weights * (losses - mean) ** 2).sum() / total
            self.log_factor = self.log_factor + step.number * (largest + np.log(total))
        self.deviation = float(np.sqrt(square))

    def _parts(self) -> Any:
        for step, (logs, losses) in zip(self.steps, self.kinds, strict=True):
            largest = logs.max()
            yield step, (np.exp(logs - largest), losses), largest

    def resolve(self, largest: float) -> None:
        """Choose points for all s up to a largest one."""
        self.kinds = []
        for step in self.steps:
            reach = 45.0 + step.nu * (2.0 + min(float(self.theta), 50.0))
            mesh = np.linspace(-reach, reach, 4001).astype(Real)
            logs = log_masses(mesh, step, self.direction, self.theta)
            kept = np.flatnonzero(logs > logs.max() - _NEGLIGIBLE)
            low, high = mesh[max(kept[0] - 1, 0)], mesh[min(kept[-1] + 1, len(mesh) - 1)]
            fine = np.linspace(low, high, 2001, dtype=Real)
            steep = np.abs(np.diff(losses_of(fine, step, self.direction)) / np.diff(fine)).max()
            apart = min(0.08, 0.1 / step.nu, 0.6 / (largest * float(steep) + 1e-300))
            count = int(float(high - low) / apart) + 2
            u = np.linspace(low, high, min(count, _MOST), dtype=Real)
            logs = log_masses(u, step, self.direction, self.theta) + np.log(u[1] - u[0])
            self.kinds.append((logs, losses_of(u, step, self.direction)))
        self.nodes = sum(len(losses) for _, losses in self.kinds)

    def change(self, s: Longs) -> Any:
        """Return ``K(theta + i s) - K(theta)``."""
        found = self.mu**2 / 2 * (1j * s * (2 * self.theta + 1) - s * s)
        for step, (weights, losses), _ in self._parts():
            waves = np.exp(1j * np.outer(s, losses)) - 1
            c = waves @ (weights / weights.sum()).astype(Complex)
            size = np.log1p(2 * c.real + np.abs(c) ** 2) / 2
            found = found + step.number * (size + 1j * np.arctan2(c.imag, 1 + c.real))
        return found

    def end(self) -> float | None:
        """Return an s from where on hardly anything is left."""
        end = 4.0 / self.deviation
        for _ in range(30):
            self.resolve(end)
            if 20 * self.nodes > _MOST:
                return None
            there = np.array([end, 1.05 * end, 1.1 * end], dtype=Real)
            log = float(self.change(there).real.max()) - 2.0 * math.log(end)
            if log < -_END - 2.0 * math.log(max(float(self.theta), 1e-3)):
                return end
            end *= 1.5
        return None

    def integral(self, epsilon: Any, end: float, factor: float) -> Any:
        """Return the integral over ``e^(K(theta) - theta epsilon)``."""
        away = (_AWAY + abs(float(self.theta * epsilon - self.log_factor))) / float(self.theta)
        period = factor * max(float(epsilon) + away, 30.0 * self.deviation + 2.0 * float(epsilon))
        count = int(end * period / (2.0 * math.pi)) + 2
        if count * self.nodes > _MOST:
            return None
        s = 2 * _PI / Real(period) * np.arange(count).astype(Real)
        z = self.theta + 1j * s
        terms = np.concatenate([self.change(s[k : k + 256]) for k in range(0, count, 256)])
        terms = (np.exp(terms - 1j * s * epsilon) / (z * (z + 1))).real
        terms[0] /= 2
        return terms.sum() * 2 / Real(period)
