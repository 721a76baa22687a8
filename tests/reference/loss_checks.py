"""Helpers of tests of intervals: accounts written briefly, and balls that have to be inside."""

import math
from collections.abc import Sequence

from flint import arb
from hypothesis import strategies as st

from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan
from reference.loss_truth import ADD_REMOVE, REPLACE, Direction

RELATIONS: dict[str, tuple[Direction, ...]] = {"add-remove": ADD_REMOVE, "replace": REPLACE}


def steps_of(relation: str, multiplier: float, rate: float, steps: int) -> SampledPlan:
    """Return equal steps, their multiplier over the bound of one contribution."""
    if relation == "add-remove":
        return SampledPlan(
            noise_multiplier=multiplier, sampling_rate=rate, steps=steps, neighbouring="add-remove"
        )
    return SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        steps=steps,
        neighbouring="replace",
        bounded="contribution",
    )


def account_of(
    relation: str, steps: Sequence[tuple[float, float, int]], releases: Sequence[float] = ()
) -> LossAccount:
    """Return the account of (multiplier, rate, steps) and of mu of Gaussian releases."""
    plans = [steps_of(relation, *each) for each in steps]
    neighbouring = plans[0].neighbouring
    return LossAccount(
        [*plans, *(GaussianRelease(mu=mu, neighbouring=neighbouring) for mu in releases)]
    )


def encloses(interval: tuple[float, float], truth: arb) -> bool:
    """Return whether no number of a ball is proven to be outside; NaN is never inside."""
    lower, upper = interval
    outside = bool(arb(lower) > truth) or bool(arb(upper) < truth)
    return 0.0 <= lower <= upper and not outside


def powers(lowest: float, highest: float) -> st.SearchStrategy[float]:
    """Return numbers whose decimal logarithm is spread evenly."""
    return st.floats(math.log10(lowest), math.log10(highest)).map(
        lambda power: min(max(10.0**power, lowest), highest)
    )
