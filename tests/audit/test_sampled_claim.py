"""The truth of claims about sampled steps: on the published code that the docs take apart."""

import math

import pytest

from matrixdp import InvalidParameterError, privacy_mu
from matrixdp.audit import SampledClaimAudit, audit_claim, audit_sampled_claim
from matrixdp.privacy import noise_multiplier_for

MNIST, CIFAR = (60_000, 512), (50_000, 256)


def published(records: int, lot: int, epsilon: float, divisor: float) -> SampledClaimAudit:
    """Return what IMGM's published code guarantees with the batch of 64 and 60 epochs it names."""
    rate, lots = lot / records, 60 * records // lot
    of_batch = rate * math.sqrt(lots) / privacy_mu(epsilon, 1e-5) / divisor
    return audit_sampled_claim(
        of_batch * math.sqrt(lot / 64), 1.0, epsilon=epsilon, delta=1e-5, steps=lots,
        sampling_rate=rate,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "epsilon", "truth"), [(MNIST, 1.0, 4.740), (CIFAR, 1.0, 20.39), (CIFAR, 10.0, 9451.0)]
)
def test_the_published_code_of_imgm(data: tuple[int, int], epsilon: float, truth: float) -> None:
    found = published(*data, epsilon, divisor=8.0)
    assert not found.holds
    assert truth <= found.true_epsilon.lower <= found.true_epsilon.upper < 1.001 * truth
    assert found.true_delta.lower > 0.1


@pytest.mark.parametrize("data", [MNIST, CIFAR])
def test_without_its_division_the_claim_of_one_holds(data: tuple[int, int]) -> None:
    found = published(*data, 1.0, divisor=1.0)
    assert found.holds
    assert found.true_epsilon.upper < 0.5


def test_a_claim_holds_at_the_noise_that_it_needs() -> None:
    plan = {"sampling_rate": 0.02, "steps": 200}
    needed = noise_multiplier_for(1.0, 1e-6, neighbouring="add-remove", **plan)  # type: ignore[arg-type]
    claim = {"epsilon": 1.0, "delta": 1e-6, **plan}
    # The noise is in units of the sensitivity.
    assert audit_sampled_claim(3.0 * needed * (1 + 1e-9), 3.0, **claim).holds  # type: ignore[arg-type]
    short = audit_sampled_claim(2.99 * needed, 3.0, **claim)  # type: ignore[arg-type]
    assert not short.holds
    assert short.true_epsilon.lower > 1.0
    assert short.true_delta.lower > 1e-6


def test_all_records_in_every_step_are_no_sample() -> None:
    claim = {"epsilon": 2.0, "delta": 1e-5, "steps": 9}
    whole = audit_claim(5.0, 1.5, **claim)  # type: ignore[arg-type]
    found = audit_sampled_claim(5.0, 1.5, sampling_rate=1.0, **claim)  # type: ignore[arg-type]
    assert found.true_epsilon.lower <= whole.true_epsilon
    assert found.true_epsilon.upper == pytest.approx(whole.true_epsilon, rel=1e-6)
    assert found.true_delta.upper == pytest.approx(whole.true_delta, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_scale": 0.0}, r"noise_scale=0\.0"),
        ({"sensitivity": -1.0}, r"sensitivity=-1\.0"),
        ({"sampling_rate": 1.5}, r"sampling_rate=1\.5"),
        ({"steps": 0}, "steps=0"),
        ({"delta": 0.0}, r"delta=0\.0"),
    ],
)
def test_bad_parameters(change: dict[str, float], message: str) -> None:
    good = {"noise_scale": 1.0, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5, "steps": 5}
    with pytest.raises(InvalidParameterError, match=message):
        audit_sampled_claim(**{**good, "sampling_rate": 0.1, **change})  # type: ignore[arg-type]
