"""Every mechanism and composition rule side by side: the noise each needs for the same promise.

All noise here is i.i.d., so one number describes it, the noise scale of each step; what it really
guarantees is another, its true epsilon. The distance between that and the promise is what a rule
wastes. All formulas are linear in the sensitivity, so they are evaluated as noise multipliers, at
sensitivity 1, and scaled once.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

from matrixdp.baselines.gaussian import classic_multiplier, classic_noise_scale
from matrixdp.baselines.precision_budget import Zeta, mvg_precision_budget, precision_budget
from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, positive_integer, positive_number
from matrixdp.privacy.accountants import Accountant, accounted_epsilon
from matrixdp.privacy.amplification import (
    before_amplification,
    checked_sampling_rate,
    claim_before_sampling,
)
from matrixdp.privacy.bound import epsilon_bounds, largest_mu
from matrixdp.privacy.claims import Claim, least_equal_claims
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.multiplier import least_multiplier
from matrixdp.privacy.planner import ErrorMeasure
from matrixdp.rounding import product_up, quotient_up, sqrt_up

__all__ = ["ClaimedNoise", "Comparison", "Contender", "claimed_noise", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What all contenders promise, and about what.

    Parameters
    ----------
    rows, columns : int
        The shape of the released matrix.
    epsilon, delta : float
        What all steps are to guarantee together; epsilon above 0.
    sensitivity : float, optional
        The largest Frobenius norm by which one record changes the matrix.
    norm_bound : float, optional
        The largest Frobenius norm of a matrix, which MVG needs; by default the sensitivity.
    steps : int, optional
        How many matrices are released.
    sampling_rate : float, optional
        The probability of a record to be in a step. Below 1 everything is for adding or removing
        a record.
    """

    rows: int
    columns: int
    epsilon: float
    delta: float
    sensitivity: float = 1.0
    norm_bound: float | None = None
    steps: int = 1
    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        """Raise if a parameter is outside its domain; what is kept is not checked again."""
        bound = self.sensitivity if self.norm_bound is None else self.norm_bound
        checked = {
            "rows": positive_integer(self.rows, "rows"),
            "columns": positive_integer(self.columns, "columns"),
            "steps": positive_integer(self.steps, "steps"),
            "epsilon": positive_number(EPSILON.number(self.epsilon), "epsilon"),
            "delta": DELTA.number(self.delta),
            "sensitivity": positive_number(self.sensitivity, "sensitivity"),
            "sampling_rate": checked_sampling_rate(self.sampling_rate),
            "norm_bound": positive_number(bound, "norm_bound"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        # Two matrices within the norm bound differ by at most twice the bound.
        if not 2.0 * checked["norm_bound"] >= checked["sensitivity"]:
            raise InvalidParameterError(
                f"norm_bound={self.norm_bound!r} is below half of sensitivity="
                f"{self.sensitivity!r}: matrices within it cannot differ by so much"
            )


@dataclass(frozen=True, slots=True)
class Contender:
    """A mechanism under a composition rule: its noise, and what that noise really guarantees.

    The mechanisms are IMGM, the analytic and the classic Gaussian, and MVG with either zeta. The
    rules are ``exact`` (mu squared adds up), ``Theorem 3.4`` of Kairouz et al. at the best split of
    delta, ``RDP`` and ``moments`` (Rényi divergences with the improved and the original
    conversion); where something is sampled also ``PLD`` (tight), ``exact, unsampled`` (sampling not
    credited) and ``amplified`` (amplification by sampling, then Theorem 3.4).

    ``noise_scale``, ``frobenius_error`` (root mean square, of each step) and ``true_epsilon`` are
    None where the mechanism refuses, or the rule's accountant does not apply; ``refusal`` is the
    reason.
    """

    mechanism: str
    rule: str
    noise_scale: float | None
    frobenius_error: float | None
    true_epsilon: float | None
    refusal: str | None = None

    @property
    def name(self) -> str:
        """The mechanism and its rule."""
        return f"{self.mechanism}, {self.rule}"


def compare(setting: Comparison) -> list[Contender]:
    """Return all contenders in a fixed order, IMGM first.

    Examples
    --------
    >>> from matrixdp.audit import Comparison, compare
    >>> found = compare(Comparison(rows=10, columns=10, epsilon=1.0, delta=1e-5, steps=10))
    >>> for one in found:
    ...     print(f"{one.name}: {one.noise_scale / found[0].noise_scale:.3g}")
    IMGM, exact: 1
    analytic, exact: 1
    analytic, RDP: 1.08
    analytic, moments: 1.31
    analytic, Theorem 3.4: 3.08
    classic, Theorem 3.4: 4.49
    MVG sharp, Theorem 3.4: 353
    MVG paper, Theorem 3.4: 5.01e+03
    """
    plan = _plan(setting)
    # Contenders with the same noise have the same epsilon.
    true_epsilon = cache(partial(_true_epsilon, setting, plan))
    return [
        _contender(setting, mechanism, rule, find, true_epsilon)
        for mechanism, rule, find in _multipliers(setting, plan)
    ]


class ClaimedNoise(NamedTuple):
    """The noise scale of a mechanism, and the claim of each step after sampling."""

    scale: float
    claim: Claim


def claimed_noise(setting: Comparison, mechanism: str) -> ClaimedNoise | None:
    """Return the noise of a mechanism whose steps compose by their claims alone.

    Each step is calibrated to the claim that, amplified by sampling and composed by Theorem 3.4 at
    the best split of delta, gives what is promised. None where the mechanism refuses such a claim.
    """
    if mechanism not in _CLAIMED:
        raise InvalidParameterError(
            f"mechanism={mechanism!r} is not known: use one of {', '.join(_CLAIMED)}"
        )
    try:
        multiplier, each = _claimed(setting, mechanism)
    except CalibrationError:
        return None
    return ClaimedNoise(_scaled(setting, multiplier), each)


def _claimed(setting: Comparison, mechanism: str) -> tuple[float, Claim]:
    """Return the multiplier by claims alone, and the claim of each step.

    Raises
    ------
    CalibrationError
        If no claim holds; the message says why.
    """
    try:
        formula = _formula(setting, mechanism)
        each, multiplier = least_equal_claims(
            setting.epsilon,
            setting.delta,
            setting.steps,
            partial(_noise_before_sampling, formula, setting.sampling_rate),
        )
        if multiplier == math.inf:
            # The doors of the formulas say why such a claim is refused.
            base = before_amplification(
                each.epsilon,
                each.delta,
                sampling_rate=setting.sampling_rate,
                sampling="poisson",
            )
            multiplier = formula.door(base.epsilon, base.delta)
    except InvalidParameterError as refusal:
        raise CalibrationError(str(refusal)) from refusal
    return multiplier, each


def _noise_before_sampling(formula: "_Formula", rate: float, epsilon: float, delta: float) -> float:
    """Return the multiplier for a claim after sampling: infinity where it is refused."""
    # Poisson sampling, because the loss distributions of the other rules are for it.
    base = claim_before_sampling(epsilon, delta, rate)
    return math.inf if base is None else formula.noise(*base)


def _claimed_multiplier(setting: Comparison, mechanism: str) -> float:
    return _claimed(setting, mechanism)[0]


class _Formula(NamedTuple):
    """The noise of one step that makes a claim, at sensitivity 1.

    A search over splits of delta meets claims that a mechanism refuses, and must go on: ``noise``
    is infinite there and checks nothing, and ``door`` raises there.
    """

    noise: Callable[[float, float], float]
    door: Callable[[float, float], float]


def _formula(setting: Comparison, mechanism: str) -> _Formula:
    match mechanism:
        case "analytic":
            return _Formula(_analytic, _analytic)
        case "classic":
            return _Formula(classic_multiplier, partial(classic_noise_scale, 1.0))
        case _:
            return _mvg(setting, Zeta.SHARP if mechanism == "MVG sharp" else Zeta.PAPER)


def _analytic(epsilon: float, delta: float) -> float:
    return quotient_up(1.0, largest_mu(epsilon, delta))


def _mvg(setting: Comparison, zeta: Zeta) -> _Formula:
    """Return the scale of MVG's i.i.d. noise, ``sqrt(sqrt(m n) / budget)``, rounded up."""
    rows, columns = setting.rows, setting.columns
    # In units of the sensitivity, like all multipliers. A larger norm bound means more noise.
    bound = quotient_up(setting.norm_bound or setting.sensitivity, setting.sensitivity)

    def by(find: Callable[..., float]) -> Callable[[float, float], float]:
        def multiplier(epsilon: float, delta: float) -> float:
            budget = find(
                *(rows, columns),
                norm_bound=bound,
                sensitivity=1.0,
                epsilon=epsilon,
                delta=delta,
                zeta=zeta,
            )
            # Three roundings, each below 1.2e-16.
            noise = math.sqrt(math.sqrt(rows * columns) / budget) if budget else math.inf
            return noise * (1.0 + 1e-15)

        return multiplier

    return _Formula(by(precision_budget), by(mvg_precision_budget))


# The mechanisms that can make a claim for each step.
_CLAIMED = ("analytic", "classic", "MVG sharp", "MVG paper")


def _multipliers(
    setting: Comparison, plan: SampledPlan
) -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield mechanism, rule and how to find the noise multiplier of every contender."""
    # Functions instead of numbers: each may be refused, and the others must still be shown.
    once, sampled = setting.steps == 1, setting.sampling_rate < 1.0
    exact = cache(partial(_exact, setting))
    accounted = partial(least_multiplier, plan, setting.epsilon, setting.delta)
    if sampled:
        yield "IMGM", "PLD", partial(accounted, Accountant.PLD)
        yield "IMGM", "exact, unsampled", exact
        rule = "amplified"
    else:
        for mechanism in ("IMGM", "analytic"):
            yield mechanism, "one release" if once else "exact", exact
        rule = "one release" if once else "Theorem 3.4"
    yield "analytic", "RDP", partial(accounted, Accountant.RDP)
    yield "analytic", "moments", partial(accounted, Accountant.MOMENTS)
    for mechanism in _CLAIMED:
        if rule != "one release" or mechanism != "analytic":  # yielded above already
            yield mechanism, rule, partial(_claimed_multiplier, setting, mechanism)


def _exact(setting: Comparison) -> float:
    """Return ``sqrt(T) / B``, Theorem 3 of the IMGM paper."""
    # Both factors rounded up, so the product is never too little noise.
    each = quotient_up(1.0, largest_mu(setting.epsilon, setting.delta))
    return product_up(each, sqrt_up(Fraction(setting.steps)))


def _plan(setting: Comparison) -> SampledPlan:
    """Return the plan of all steps, with noise to be put in its stead."""
    return SampledPlan(
        noise_multiplier=1.0,
        sampling_rate=setting.sampling_rate,
        steps=setting.steps,
        neighbouring="add-remove",
    )


def _scaled(setting: Comparison, multiplier: float) -> float:
    """Return the noise scale: sensitivity times multiplier, rounded up."""
    try:
        return product_up(setting.sensitivity, multiplier)
    except InvalidParameterError:
        raise InvalidParameterError(
            f"sensitivity={setting.sensitivity!r} needs noise beyond the range of a float: rescale "
            "the matrix"
        ) from None


def _contender(
    setting: Comparison,
    mechanism: str,
    rule: str,
    find: Callable[[], float],
    true_epsilon: Callable[[float], float],
) -> Contender:
    try:
        multiplier = find()
    except CalibrationError as refusal:
        return Contender(mechanism, rule, None, None, None, str(refusal))
    # The error from the multiplier, not from the scale: rounding up once is enough.
    noise_scale = _scaled(setting, multiplier)
    per_unit = ErrorMeasure.FROBENIUS.per_unit_noise(setting.rows, setting.columns)
    return Contender(
        mechanism,
        rule,
        noise_scale,
        _scaled(setting, product_up(multiplier, per_unit)),
        true_epsilon(multiplier),
    )


def _true_epsilon(setting: Comparison, plan: SampledPlan, multiplier: float) -> float:
    """Return what noise of this multiplier in every step guarantees at the delta, rounded up.

    The rule that chose the noise proves the promise itself, and the exact curve holds with or
    without sampling. Without sampling no account is below it. Where something is sampled the loss
    distribution is tighter than all others, but it does not resolve every rate, multiplier and
    delta. All are proven, so the least is returned.
    """
    noisy, delta = plan.with_noise(multiplier), setting.delta
    answers = [setting.epsilon]
    # What does not apply to this plan is left out; the promise itself remains.
    with contextlib.suppress(CalibrationError):
        answers.append(epsilon_bounds(noisy.whole_mu, delta)[1])
    for accountant in Accountant if plan.sampling_rate < 1.0 else ():
        with contextlib.suppress(CalibrationError):
            answers.append(accounted_epsilon(noisy, delta, accountant))
    return min(answers)
