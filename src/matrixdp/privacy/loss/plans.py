"""The pairs of distributions that a list of events comes down to."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import MU
from matrixdp.privacy.events import Event, GaussianRelease, SampledPlan, TooLittleNoiseError
from matrixdp.privacy.loss.curve import Steps
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.rounding import quotient_up, sqrt_up

__all__ = ["LEAST_RESOLVED_MU", "steps_of"]

LEAST_RESOLVED_MU = 1e-12
"""A release of less is accounted for as one of that."""

_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 0.02, 1e12
_SMALLEST_RATE = 1e-12
_MOST_STEPS = 10**9


def steps_of(events: Sequence[Event]) -> tuple[Steps, float, bool]:
    """Return the pairs and how often each occurs, the mu of releases, and whether all are such."""
    listed = list(events) if isinstance(events, list | tuple) else []
    if not listed or not all(isinstance(event, Event) for event in listed):
        raise InvalidParameterError(
            "events must be a list of at least one SampledPlan or GaussianRelease, and of nothing "
            "else"
        )
    relations = {event.neighbouring for event in events}
    if len(relations) > 1:
        raise InvalidParameterError(
            "events are under different neighbouring relations: state all of them under one"
        )
    pairs: Counter[Pair] = Counter()
    squares = Fraction(0)
    for event in events:
        if isinstance(event, GaussianRelease):
            squares += Fraction(event.mu) ** 2
        elif event.sampling_rate == 1.0:
            squares += event.steps * Fraction(event.mu_of_step) ** 2
        else:
            pairs[_pair_of(event)] += event.steps
    mu = sqrt_up(squares)
    if not mu <= MU.largest:
        raise TooLittleNoiseError(f"mu={mu!r} of all releases without sampling")
    if not pairs:
        return [(AddRemovePair(1.0, max(mu, LEAST_RESOLVED_MU)), 1)], mu, True
    if mu > 0.0:
        pairs[AddRemovePair(1.0, mu)] += 1
    return list(pairs.items()), mu, False


def _pair_of(plan: SampledPlan) -> Pair:
    """Return the pair of a step, or raise if it is outside of what is resolved."""
    for name, given, least, most in (
        ("noise_multiplier", plan.noise_multiplier, _SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER),
        ("sampling_rate", plan.sampling_rate, _SMALLEST_RATE, 1.0),
        ("steps", plan.steps, 1, _MOST_STEPS),
    ):
        if not least <= given <= most:
            raise CalibrationError(
                f"{name}={given!r} is outside of {least!r} to {most!r}, for which losses are "
                "resolved: change it, or use RDP"
            )
    mu = quotient_up(1.0, plan.noise_multiplier)
    kind = ReplacePair if plan.neighbouring == "replace" else AddRemovePair
    return kind(plan.sampling_rate, mu)
