"""Audits of claims: the guarantee that given noise really has."""

from dataclasses import dataclass
from fractions import Fraction

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, MU, positive_integer, positive_number
from matrixdp.privacy.bound import epsilon_bounds, largest_mu, least_delta
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.loss import Interval, LossAccount
from matrixdp.rounding import product_up, quotient_down, quotient_up, sqrt_up

__all__ = ["ClaimAudit", "SampledClaimAudit", "audit_claim", "audit_sampled_claim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAudit:
    """What i.i.d. Gaussian noise guarantees, beside what was claimed of it.

    Attributes
    ----------
    mu : float
        sensitivity sqrt(steps) / noise scale, rounded up.
    true_epsilon : float
        The least epsilon at the claimed delta, rounded up.
    true_delta : float
        The least delta at the claimed epsilon, rounded up.
    needed_noise_scale : float
        The least noise scale that keeps the claim, rounded up.
    holds : bool
        Whether the claim is kept.
    """

    epsilon: float
    delta: float
    mu: float
    true_epsilon: float
    true_delta: float
    needed_noise_scale: float
    holds: bool


def audit_claim(
    noise_scale: float, sensitivity: float, *, epsilon: float, delta: float, steps: int = 1
) -> ClaimAudit:
    """Return what noise of one scale really guarantees, by the exact curve.

    Parameters
    ----------
    noise_scale : float
        The standard deviation of the noise on every entry, in each release.
    sensitivity : float
        The largest Frobenius norm by which one record changes the matrix.
    epsilon, delta : float
        What was claimed.
    steps : int, optional
        How many matrices were released with that noise.

    Notes
    -----
    *Guarantee:* the true epsilon and delta hold under the relation of the sensitivity, and no
    smaller ones do wherever every difference within the sensitivity can occur.

    Examples
    --------
    The textbook formula at epsilon 10, where its proof does not hold:

    >>> import math
    >>> from matrixdp.audit import audit_claim
    >>> scale = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    >>> found = audit_claim(scale, 1.0, epsilon=10.0, delta=1e-5)
    >>> found.holds, round(found.true_delta, 7)
    (False, 2.27e-05)
    """
    scale = positive_number(noise_scale, "noise_scale")
    difference = positive_number(sensitivity, "sensitivity")
    loss, delta = EPSILON.number(epsilon), DELTA.number(delta)
    count = positive_integer(steps, "steps")
    # Caught, because the error of the rounding names neither of the arguments.
    try:
        whole = product_up(difference, sqrt_up(Fraction(count)))
        needed = quotient_up(whole, largest_mu(loss, delta))
    except InvalidParameterError:
        raise InvalidParameterError(
            f"sensitivity={difference!r} in steps={count} needs noise beyond the range of a "
            "float: rescale the matrix"
        ) from None
    # Compared as rationals, because the quotient may overflow.
    if not Fraction(whole) <= Fraction(MU.largest) * Fraction(scale):
        raise InvalidParameterError(
            f"noise_scale={scale!r} is below a {MU.largest:g}th of what sensitivity={difference!r} "
            f"in steps={count} adds up to: it protects nothing; give more noise"
        )
    mu = quotient_up(whole, scale)
    # By the scale and not by mu: needed is rounded up, so a claim that holds here is proven.
    holds = scale >= needed
    true_epsilon, true_delta = epsilon_bounds(mu, delta)[1], least_delta(mu, loss)
    return ClaimAudit(
        epsilon=loss,
        delta=delta,
        mu=mu,
        # A claim that holds is an upper bound, too, and may be closer by the last digits.
        true_epsilon=min(true_epsilon, loss) if holds else true_epsilon,
        true_delta=min(true_delta, delta) if holds else true_delta,
        needed_noise_scale=needed,
        holds=holds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledClaimAudit:
    """What Gaussian steps on Poisson samples guarantee, beside what was claimed of them.

    Attributes
    ----------
    true_epsilon : Interval
        Proven bounds of the least epsilon at the claimed delta.
    true_delta : Interval
        Proven bounds of the least delta at the claimed epsilon.
    """

    epsilon: float
    delta: float
    true_epsilon: Interval
    true_delta: Interval

    @property
    def holds(self) -> bool:
        """Whether the claim is proven."""
        return self.true_epsilon.upper <= self.epsilon


def audit_sampled_claim(
    noise_scale: float,
    sensitivity: float,
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float,
) -> SampledClaimAudit:
    """Return what Gaussian steps on Poisson samples really guarantee, from both sides.

    Parameters
    ----------
    noise_scale : float
        The standard deviation of the noise on every entry, in each step.
    sensitivity : float
        The largest Frobenius norm by which a record that is added or removed changes a step's sum.
    epsilon, delta : float
        What was claimed.
    steps : int
        How many.
    sampling_rate : float
        The probability of each record to be in a step, above 0 and at most 1.

    Notes
    -----
    *Guarantee:* the upper bounds hold under adding or removing a record; no account of all steps
    could prove less than the lower ones.

    Examples
    --------
    >>> from matrixdp.audit import audit_sampled_claim
    >>> found = audit_sampled_claim(
    ...     1.0, 1.0, epsilon=1.0, delta=1e-5, steps=1000, sampling_rate=0.01
    ... )
    >>> found.holds, round(found.true_epsilon.lower, 3)
    (False, 1.828)
    """
    scale = positive_number(noise_scale, "noise_scale")
    difference = positive_number(sensitivity, "sensitivity")
    loss, chance = EPSILON.number(epsilon), DELTA.number(delta)

    def bounds(multiplier: float) -> tuple[Interval, Interval]:
        plan = SampledPlan(
            noise_multiplier=multiplier,
            sampling_rate=sampling_rate,
            steps=steps,
            neighbouring="add-remove",
        )
        account = LossAccount([plan])
        return account.epsilon_at(chance), account.delta_at(loss)

    # Less noise for what is promised, more for what is denied: the quotient is no float.
    most, least = (bounds(round_to(scale, difference)) for round_to in (quotient_down, quotient_up))
    (true_epsilon, true_delta) = (
        Interval(low.lower, high.upper) for low, high in zip(least, most, strict=True)
    )
    return SampledClaimAudit(
        epsilon=loss, delta=chance, true_epsilon=true_epsilon, true_delta=true_delta
    )
