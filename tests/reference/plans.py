"""Plans of sampled steps."""

from matrixdp.privacy import SampledPlan


def sampled(multiplier: float, rate: float, steps: int) -> SampledPlan:
    """Return a plan under adding and removing records."""
    return SampledPlan(
        noise_multiplier=multiplier, sampling_rate=rate, steps=steps, neighbouring="add-remove"
    )


def replaced(multiplier: float, rate: float, steps: int) -> SampledPlan:
    """Return a plan under replacing a record, with the noise over one record's contribution."""
    return SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=rate,
        steps=steps,
        neighbouring="replace",
        bounded="contribution",
    )
