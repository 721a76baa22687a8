"""Sampled plans, and what their tests need to be installed."""

import importlib.util

import pytest

from matrixdp.privacy import SampledPlan

needs_accounting = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None,
    reason="dp-accounting is not installed: pip install 'matrixdp[accounting]'",
)


def sampled(multiplier: float, rate: float, steps: int) -> SampledPlan:
    """Return a plan under adding and removing records."""
    return SampledPlan(
        noise_multiplier=multiplier, sampling_rate=rate, steps=steps, neighbouring="add-remove"
    )
