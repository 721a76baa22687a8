"""The noise that a release of features needs, and what that noise really guarantees.

All numbers are in units of the clip norm C: a row has a norm of at most 1, so that replacing its
record moves it by at most 2. Formulas only: no data, no model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from matrixdp.baselines import MVG, AnalyticGaussian, ClassicGaussian
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.privacy import Budget, privacy_epsilon
from matrixdp.queries import Features, JointMoments, PublicBounds
from matrixdp.rounding import float_down, quotient_up, shown_up, sqrt_up
from matrixdp_experiments.grid.runs import DELTA
from matrixdp_experiments.released_features.settings import FeatureSetting

__all__ = [
    "MECHANISMS",
    "ReleaseAccount",
    "ReleaseProtocol",
    "block_sizes",
    "budget_of",
    "moments_account",
    "rows_account",
]

ReleaseProtocol = Literal["exact", "paper"]
"""How a claim becomes a budget: as it is, or divided by the sampling rate as in the paper."""

# All processors agree on so many digits of a multiplier, which is part of the name of a run.
_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAccount:
    """The noise of a release in units of the clip norm, and its true epsilon.

    Attributes
    ----------
    noise_multiplier : float or None
        The scale of the noise on every entry; of a symmetric matrix that on its diagonal. None
        where the mechanism does not apply.
    last_block_multiplier : float or None
        Of MVG the scale in its last block, which has fewer rows than the others.
    true_epsilon : float or None
        What the noise really guarantees at ``DELTA``, by the exact curve, rounded up.
    refusal : str or None
        Why the mechanism does not apply.
    """

    noise_multiplier: float | None = None
    last_block_multiplier: float | None = None
    true_epsilon: float | None = None
    refusal: str | None = None


def budget_of(setting: FeatureSetting, protocol: ReleaseProtocol, epsilon: float) -> Budget:
    """Return what the noise of a row is calibrated to, for a claimed epsilon.

    Under ``exact`` the claim itself. Under ``paper`` (epsilon/q, delta/q) with q the batch size
    over the number of training records, as if a record were hidden among those of other batches;
    it is not, since its row is released for certain.
    """
    if protocol == "exact":
        return Budget(epsilon, DELTA)
    rate = Fraction(setting.batch_size, setting.records)
    return Budget(float_down(Fraction(epsilon) / rate), float_down(Fraction(DELTA) / rate))


def block_sizes(rows: int, block: int) -> tuple[int, int]:
    """Return the rows of the full blocks, and those of the last one.

    Each record is in exactly one block. The last block has what is left over, or is full as well.

    Examples
    --------
    >>> block_sizes(1000, 256), block_sizes(512, 256), block_sizes(100, 256)
    ((256, 232), (256, 256), (100, 100))
    """
    full = min(rows, block)
    return full, rows % full or full


def _rows(setting: FeatureSetting, count: int) -> Features:
    return Features(PublicBounds(setting.features, norm=1.0), "replace", count=count)


def _block_of_mvg(setting: FeatureSetting, budget: Budget, rows: int) -> GaussianMechanism:
    """MVG for a block of rows, each of norm 1 at most: gamma is the root of their number."""
    return MVG(
        _rows(setting, rows).sensitivity,
        budget,
        shape=(rows, setting.features),
        norm_bound=sqrt_up(Fraction(rows)),
    )


MECHANISMS: dict[str, str] = {
    # In the order of tables and figures.
    "none": "no noise",
    "public": "public part alone",
    "imgm": "IMGM",
    "analytic": "analytic Gaussian",
    "classic": "classic Gaussian",
    "mvg": "MVG",
}
"""The mechanisms and their titles; ``none`` and ``public`` release no private row with noise."""

_ONE_SCALE: dict[str, Callable[..., GaussianMechanism]] = {
    "imgm": IMGM,
    "analytic": AnalyticGaussian,
    "classic": ClassicGaussian,
}


# Cells of all seeds, networks and clip rules share an account.
@lru_cache
def rows_account(
    setting: FeatureSetting, mechanism: str, protocol: ReleaseProtocol, epsilon: float
) -> ReleaseAccount:
    """Return the noise that a mechanism adds to every row, and the epsilon it really costs.

    Each record owns one row, which is released once, so that the guarantee of a row is that of the
    matrix: nothing is composed, and nothing is amplified.

    Raises
    ------
    InvalidParameterError
        If the mechanism is not known or adds no noise.
    """
    budget = budget_of(setting, protocol, epsilon)
    if mechanism == "mvg":
        sizes = block_sizes(setting.private_records, setting.batch_size)
        full, last = (_rounded_scale(_block_of_mvg(setting, budget, size)) for size in sizes)
        return ReleaseAccount(
            noise_multiplier=full,
            last_block_multiplier=last,
            true_epsilon=_true_epsilon(min(full, last)),
        )
    if mechanism not in _ONE_SCALE:
        known = ", ".join([*_ONE_SCALE, "mvg"])
        raise InvalidParameterError(f"mechanism={mechanism!r} has no account: use one of {known}")
    if mechanism == "classic" and not budget.epsilon <= 1.0:
        return ReleaseAccount(
            refusal="the classic formula is proven for an epsilon of at most 1, and the noise of a "
            f"row is calibrated to {shown_up(budget.epsilon, 4)}"
        )
    one_row = _rows(setting, 1).sensitivity
    scale = _rounded_scale(_ONE_SCALE[mechanism](one_row, budget))
    return ReleaseAccount(noise_multiplier=scale, true_epsilon=_true_epsilon(scale))


@lru_cache
def moments_account(setting: FeatureSetting, epsilon: float) -> ReleaseAccount:
    """Return the noise of the joint moments of rows and labels; one record is one row of both.

    Rows have norm 1 at most and labels are unit vectors. Replacing a record changes the moments by
    ``sqrt(2) (1 + 1)`` at most; see `JointMoments`.
    """
    rows, labels = PublicBounds(setting.features, norm=1.0), PublicBounds(setting.classes, norm=1.0)
    ball = JointMoments(rows, labels, "replace").sensitivity
    scale = _rounded_scale(IMGM(ball, Budget(epsilon, DELTA)))
    return ReleaseAccount(noise_multiplier=scale, true_epsilon=_true_epsilon(scale, ball.bound))


def _rounded_scale(mechanism: GaussianMechanism) -> float:
    # Up, so that the noise keeps its budget.
    return float(shown_up(mechanism.covariance.smallest_singular_value, _DIGITS))


def _true_epsilon(scale: float, change: float = 2.0) -> float:
    """Return the epsilon of noise of one scale; replacing a record moves its row by 2 at most."""
    return privacy_epsilon(quotient_up(change, scale), DELTA)
