"""Every mechanism and composition rule side by side: the noise each needs for the same promise.

All noise here is i.i.d., so one number describes it, the noise scale of each step; what it really
guarantees is another, its true epsilon. The distance between that and the promise is what a rule
wastes. All formulas are linear in the sensitivity, so they are evaluated as noise multipliers, at
sensitivity 1, and scaled once.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from matrixdp.baselines.gaussian import classic_noise_scale
from matrixdp.baselines.precision_budget import Zeta, mvg_precision_budget
from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, positive_integer, positive_number
from matrixdp.privacy.accountants import Accountant, plan_epsilon
from matrixdp.privacy.amplification import before_amplification, checked_sampling_rate
from matrixdp.privacy.bound import privacy_mu
from matrixdp.privacy.claims import Claim, best_equal_claims
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.multiplier import noise_multiplier_for
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
        """Raise if a parameter is outside its domain."""
        positive_integer(self.rows, "rows")
        positive_integer(self.columns, "columns")
        positive_integer(self.steps, "steps")
        positive_number(EPSILON.number(self.epsilon), "epsilon")
        DELTA.number(self.delta)
        positive_number(self.sensitivity, "sensitivity")
        checked_sampling_rate(self.sampling_rate)
        if self.norm_bound is None:
            object.__setattr__(self, "norm_bound", self.sensitivity)
        # Two matrices within the norm bound differ by at most twice the bound.
        if not 2.0 * positive_number(self.norm_bound, "norm_bound") >= self.sensitivity:
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
    return [
        _contender(setting, mechanism, rule, find)
        for mechanism, rule, find in _multipliers(setting)
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
    formula = _FORMULAS.get(mechanism)
    if formula is None:
        raise InvalidParameterError(
            f"mechanism={mechanism!r} is not known: use one of {', '.join(_FORMULAS)}"
        )
    try:
        multiplier, each = _claimed(setting, formula)
    except CalibrationError:
        return None
    return ClaimedNoise(_scaled(setting, multiplier), each)


_Formula = Callable[[Comparison, float, float], float]


def _claimed(setting: Comparison, formula: _Formula) -> tuple[float, Claim]:
    """Return the multiplier by claims alone, and the claim of each step.

    Raises
    ------
    CalibrationError
        Which says why there is none.
    """
    refusals: list[str] = []

    def noise(epsilon: float, delta: float) -> float:
        """Return the multiplier for a claim: infinity where it is refused."""
        # A search over splits of delta meets claims that a formula refuses, and must go on.
        try:
            # Poisson sampling, because the loss distributions of the other rules are for it.
            base = before_amplification(
                epsilon, delta, sampling_rate=setting.sampling_rate, sampling="poisson"
            )
            return formula(setting, base.epsilon, base.delta)
        except InvalidParameterError as refusal:
            refusals.append(str(refusal))
            return math.inf

    try:
        each = best_equal_claims(setting.epsilon, setting.delta, setting.steps, noise)
    except CalibrationError as failure:
        raise CalibrationError(refusals[-1] if refusals else str(failure)) from failure
    multiplier = noise(each.epsilon, each.delta)
    if not multiplier < math.inf:
        raise CalibrationError(refusals[-1])
    return multiplier, each


def _claimed_multiplier(setting: Comparison, formula: _Formula) -> float:
    return _claimed(setting, formula)[0]


def _analytic(_: Comparison, epsilon: float, delta: float) -> float:
    return quotient_up(1.0, privacy_mu(epsilon, delta))


def _classic(_: Comparison, epsilon: float, delta: float) -> float:
    return classic_noise_scale(1.0, epsilon, delta)


def _mvg(setting: Comparison, epsilon: float, delta: float, zeta: Zeta) -> float:
    """Return the scale of MVG's i.i.d. noise, ``sqrt(sqrt(m n) / budget)``, rounded up."""
    # In units of the sensitivity, like all multipliers. A larger norm bound means more noise.
    budget = mvg_precision_budget(
        setting.rows,
        setting.columns,
        norm_bound=quotient_up(setting.norm_bound or setting.sensitivity, setting.sensitivity),
        sensitivity=1.0,
        epsilon=epsilon,
        delta=delta,
        zeta=zeta,
    )
    # Three roundings, each below 1.2e-16.
    return math.sqrt(math.sqrt(setting.rows * setting.columns) / budget) * (1.0 + 1e-15)


# The noise of one step that makes a claim, at sensitivity 1.
_FORMULAS: dict[str, _Formula] = {
    "analytic": _analytic,
    "classic": _classic,
    "MVG sharp": lambda setting, epsilon, delta: _mvg(setting, epsilon, delta, Zeta.SHARP),
    "MVG paper": lambda setting, epsilon, delta: _mvg(setting, epsilon, delta, Zeta.PAPER),
}


def _multipliers(setting: Comparison) -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield mechanism, rule and how to find the noise multiplier of every contender."""
    # Functions instead of numbers: each may be refused, and the others must still be shown.
    once, sampled = setting.steps == 1, setting.sampling_rate < 1.0
    exact = partial(_exact, setting)
    if sampled:
        yield "IMGM", "PLD", partial(_accounted, setting, Accountant.PLD)
        yield "IMGM", "exact, unsampled", exact
        rule = "amplified"
    else:
        for mechanism in ("IMGM", "analytic"):
            yield mechanism, "one release" if once else "exact", exact
        rule = "one release" if once else "Theorem 3.4"
    yield "analytic", "RDP", partial(_accounted, setting, Accountant.RDP)
    yield "analytic", "moments", partial(_accounted, setting, Accountant.MOMENTS)
    for mechanism, formula in _FORMULAS.items():
        if rule != "one release" or mechanism != "analytic":  # yielded above already
            yield mechanism, rule, partial(_claimed_multiplier, setting, formula)


def _exact(setting: Comparison) -> float:
    """Return ``sqrt(T) / B``, Theorem 3 of the IMGM paper."""
    # Both factors rounded up, so the product is never too little noise.
    each = quotient_up(1.0, privacy_mu(setting.epsilon, setting.delta))
    return product_up(each, sqrt_up(Fraction(setting.steps)))


def _accounted(setting: Comparison, accountant: Accountant) -> float:
    return noise_multiplier_for(
        setting.epsilon,
        setting.delta,
        sampling_rate=setting.sampling_rate,
        steps=setting.steps,
        neighbouring="add-remove",
        accountant=accountant,
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
    setting: Comparison, mechanism: str, rule: str, find: Callable[[], float]
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
        _true_epsilon(setting, multiplier),
    )


def _true_epsilon(setting: Comparison, multiplier: float) -> float:
    """Return what noise of this multiplier in every step guarantees at the delta, rounded up.

    The rule that chose the noise proves the promise itself, and the exact curve holds with or
    without sampling. Where something is sampled the loss distribution is tighter than all others,
    but it does not resolve every rate, multiplier and delta. All are proven, so the least is
    returned.
    """
    plan = SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=setting.sampling_rate,
        steps=setting.steps,
        neighbouring="add-remove",
    )
    whole = replace(plan, sampling_rate=1.0)
    answers = [setting.epsilon]
    # An accountant that does not apply to this plan is left out; the promise itself remains.
    for each, accountant in ((whole, Accountant.PLD), *((plan, one) for one in Accountant)):
        with contextlib.suppress(CalibrationError):
            answers.append(plan_epsilon(each, setting.delta, accountant))
    return min(answers)
