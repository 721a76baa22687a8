r"""The envelope of a plan's privacy curve: its cost in a ledger where it was not declared.

A step of probability ``delta'`` that reveals everything, and otherwise a Gaussian release of mu,
has the curve ``g(t) = delta' + (1 - delta') delta_G(mu, log t)`` at ``t = e^epsilon``. If the
plan's curve f is nowhere above it, the plan is post-processing of that step (Blackwell), and so it
may be chosen at any time, by what was released before, at the price of ``mu^2`` and ``delta'``.

*It suffices to look at t >= 1, in both directions.* With P and Q exchanged in f', ``f(1/t) = 1 - (1
- f'(t)) / t``, and likewise ``g(1/t) = 1 - (1 - g(t)) / t``: below 1 it is the same inequality.

*Finitely many values prove it.* f is convex in t and falls; so between two points it is at most the
chord of upper bounds there, and beyond the last one, where it is at most ``delta'``, it stays below
that. g is convex, too, and lies above each of its tangents: those of the Gaussian curve are
``Phi(mu/2 - x) - t Phi(-mu/2 - x)``, and for every x this is a lower bound of it (Neyman and
Pearson). A line that is above the chord at both of its ends is above all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError
from matrixdp.parameters import DELTA, MU
from matrixdp.privacy.events import Event
from matrixdp.privacy.loss.account import LossAccount

__all__ = ["PlanEnvelope", "plan_envelope"]

FloatArray = NDArray[np.float64]

_POINTS = 200
_WIDTH = 1e-4  # of deltas; with wider ones, mu grows
_BISECTIONS = 60
_ROUNDING = 1e-12  # of normal probabilities, and of sums of them
_LEAST = 1e-300  # above every normal probability that a float loses
_WIDER = 1e-9


@dataclass(frozen=True)
class PlanEnvelope:
    """A leak and a Gaussian release that together reveal at least as much as a plan.

    Attributes
    ----------
    mu : float
        Of the release.
    delta : float
        The probability of the leak.
    """

    mu: float
    delta: float


def plan_envelope(events: Event | Sequence[Event], *, delta: float) -> PlanEnvelope:
    """Return the least mu for which a leak of a given probability and a release cover a plan.

    Parameters
    ----------
    events : SampledPlan, GaussianRelease or a sequence of these
        The plan.
    delta : float
        The probability of the leak. With a smaller one mu is larger.

    Returns
    -------
    PlanEnvelope
        Its mu is rounded up.

    Raises
    ------
    CalibrationError
        If no mu below 1e6 covers the plan, or its losses are not resolved.

    Examples
    --------
    >>> from matrixdp.privacy import SampledPlan, plan_envelope
    >>> steps = SampledPlan(
    ...     noise_multiplier=1.5, sampling_rate=0.017, steps=1000, neighbouring="add-remove"
    ... )
    >>> envelope = plan_envelope(steps, delta=1e-7)
    >>> round(envelope.mu, 3), envelope.delta
    (0.422, 1e-07)
    """
    delta = DELTA.number(delta)
    plan = [events] if isinstance(events, Event) else list(events)
    account = LossAccount(plan, width=_WIDTH)
    last = account.epsilon_at(delta).upper
    epsilons = np.linspace(0.0, last, _POINTS) if last > 0.0 else np.zeros(1)
    uppers = np.array([found.upper for found in account.deltas_at(epsilons.tolist())])
    # By `epsilon_at` the last one is at most delta itself.
    uppers[-1] = min(uppers[-1], delta)
    uppers = np.minimum.accumulate(uppers)  # delta falls
    mu = _least_mu(epsilons, uppers, delta)
    return PlanEnvelope(mu=mu, delta=delta)


def _least_mu(epsilons: FloatArray, uppers: FloatArray, delta: float) -> float:
    """Return a mu that is proven to cover all chords, close to the least."""
    if len(epsilons) == 1 or bool((uppers <= delta).all()):
        return 0.0
    low, high = 0.0, 1.0
    while not covers(epsilons, uppers, delta, high):
        low, high = high, 2.0 * high
        if high > MU.largest:
            raise CalibrationError(f"no release covers this plan with a leak of {delta!r}")
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low <= _WIDER * high:
            break
        low, high = (low, middle) if covers(epsilons, uppers, delta, middle) else (middle, high)
    return high


def covers(epsilons: FloatArray, uppers: FloatArray, delta: float, mu: float) -> bool:
    """Return whether tangents prove that a leak and a release are above all chords.

    Parameters
    ----------
    epsilons : array
        In order, from 0 to where the plan's delta is at most the leak.
    uppers : array
        Upper bounds of the plan's delta there.
    delta, mu : float
        Of the leak and the release.
    """
    covered = np.zeros(len(epsilons) - 1, dtype=bool)
    for share in (0.5, 0.0, 1.0):
        x = ((1.0 - share) * epsilons[:-1] + share * epsilons[1:]) / mu
        own, other = scipy.special.ndtr(0.5 * mu - x), scipy.special.ndtr(-0.5 * mu - x)
        above = np.ones(len(x), dtype=bool)
        for ends, bounds in ((epsilons[:-1], uppers[:-1]), (epsilons[1:], uppers[1:])):
            taken = np.exp(ends) * np.maximum(other, _LEAST) * (1.0 + _ROUNDING)
            line = delta + (1.0 - delta) * (own * (1.0 - _ROUNDING) - taken)
            above &= bounds <= line - _ROUNDING * (delta + own + taken)
        # Where both ends are below the leak, so is the chord.
        covered |= above | (np.maximum(uppers[:-1], uppers[1:]) <= delta)
    return bool(covered.all())
