"""Events: uses of the data, as values that an account can add up."""

import copy
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self, get_args

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import MU, positive_integer, positive_number
from matrixdp.privacy.amplification import checked_sampling_rate
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import quotient_up, sqrt_up

__all__ = ["Bounded", "Event", "GaussianRelease", "SampledPlan", "TooLittleNoiseError"]

Bounded = Literal["difference", "contribution"]
"""What the sensitivity bounds: the difference of two data sets, or each record's contribution."""


class TooLittleNoiseError(CalibrationError):
    """A plan's epsilon is beyond anything that protects, and is not computed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is too little noise to account for: it protects nothing; use more"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianRelease:
    """One or several releases with Gaussian noise on all of the data, fixed in advance.

    Parameters
    ----------
    mu : float
        Their Gaussian-DP parameter, positive: the root of the sum of the squares of their mu.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.

    Examples
    --------
    >>> from matrixdp.privacy import GaussianRelease
    >>> GaussianRelease(mu=0.5, neighbouring="replace").mu
    0.5
    """

    mu: float
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise if a parameter is outside its domain."""
        object.__setattr__(self, "mu", positive_number(MU.number(self.mu), "mu"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(self.neighbouring))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan:
    """A number of equal Gaussian steps, each on a Poisson sample, fixed in advance.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, *under the relation named here*.
    sampling_rate : float
        The probability of each record to be in a step, above 0 and at most 1.
    steps : int
        How many.
    neighbouring : {"add-remove", "replace"}
        The relation.
    bounded : {"difference", "contribution"}, optional
        What that sensitivity bounds. ``"difference"``, the default: how far the sums of two
        neighbouring data sets are apart, as sensitivity sets do. ``"contribution"``: the norm of
        one record's share of the sum, for instance a clip norm. Under ``"add-remove"`` the two are
        the same. Under ``"replace"`` with sampling, the difference alone does not say enough: one
        of the two records may be sampled without the other. State the contribution there.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain, or a replaced record is sampled and only the
        difference is bounded.

    Examples
    --------
    >>> from matrixdp.privacy import SampledPlan
    >>> SampledPlan(noise_multiplier=1.0, sampling_rate=0.01, steps=100, neighbouring="replace")
    Traceback (most recent call last):
    ...
    matrixdp.errors.InvalidParameterError: neighbouring='replace' with sampling_rate=0.01 ...
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    neighbouring: Neighbouring
    bounded: Bounded = "difference"

    def __post_init__(self) -> None:
        """Raise if a parameter is outside its domain."""
        multiplier = positive_number(self.noise_multiplier, "noise_multiplier")
        rate = checked_sampling_rate(self.sampling_rate)
        object.__setattr__(self, "noise_multiplier", multiplier)
        object.__setattr__(self, "sampling_rate", rate)
        object.__setattr__(self, "steps", positive_integer(self.steps, "steps"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(self.neighbouring))
        if self.bounded not in get_args(Bounded):
            raise InvalidParameterError(
                f"bounded={self.bounded!r} is not known: pass 'difference' or 'contribution'"
            )
        if rate < 1.0 and self.neighbouring == "replace" and self.bounded == "difference":
            raise InvalidParameterError(
                f"neighbouring='replace' with sampling_rate={rate!r} is not accounted for by a "
                "bound on the difference: of two records that are exchanged one may be sampled and "
                "the other not; pass bounded='contribution' with the noise over the bound of one "
                "record's contribution, or account under 'add-remove'"
            )

    def with_noise(self, noise_multiplier: float) -> Self:
        """Return the plan with other noise, a positive number; nothing is checked again."""
        changed = copy.copy(self)
        object.__setattr__(changed, "noise_multiplier", noise_multiplier)
        return changed

    @property
    def noise_over_difference(self) -> float:
        """The noise over how far the sums of two neighbouring data sets are apart at most."""
        replaced = self.neighbouring == "replace" and self.bounded == "contribution"
        # Two contributions of opposite directions are twice as far apart as either is from zero.
        # Half of the smallest float would be 0.
        half = max(0.5 * self.noise_multiplier, math.ulp(0.0))
        return half if replaced else self.noise_multiplier

    @property
    def mu_of_step(self) -> float:
        """The mu of a step that sees all of the data, rounded up."""
        return quotient_up(1.0, self.noise_over_difference)

    @property
    def whole_mu(self) -> float:
        """The mu of all steps if each saw all of the data, rounded up; refused above 1e4."""
        mu = quotient_up(sqrt_up(Fraction(self.steps)), self.noise_over_difference)
        if not mu <= MU.largest:
            raise TooLittleNoiseError(
                f"noise_multiplier={self.noise_multiplier!r} in steps={self.steps}"
            )
        return mu


Event = GaussianRelease | SampledPlan
