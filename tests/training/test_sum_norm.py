"""The bound of a whole sum: a projection, which moves neighbouring sums no further apart."""

import hashlib
import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn, optim

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.training.lots.sampling import SeededCoins, drawn_records
from matrixdp.training.noise.blocks import Sums
from matrixdp.training.noise.step_noise import StepNoise
from training.small_training import RECORDS, private, small_model, small_plan, train

BOUND = 3.0
# What float32 may add to a difference of sums of this size.
ROUNDING = 1e-5


def gathered(sums: Sums, model: nn.Module, **plan: Any) -> Tensor:
    """Return the sums of a step as one vector, two blocks in it."""
    noise = StepNoise(
        model, model.parameters(), small_plan(**plan), {"0": Isotropic(2.0)}, seed=None
    )
    matrices = noise.gathered(sums)
    assert len(matrices) == 2
    return torch.cat([matrix.flatten() for matrix in matrices]).double()


def random_sums(model: nn.Module, norm: float, generator: torch.Generator) -> dict[Any, Tensor]:
    parts = {part: torch.randn(part.shape, generator=generator) for part in model.parameters()}
    length = float(torch.cat([part.flatten() for part in parts.values()]).norm())
    return {name: part * (norm / length) for name, part in parts.items()}


@pytest.mark.parametrize("norm", [0.0, 1.0, 2.99])
def test_a_sum_within_the_bound_keeps_every_bit(norm: float) -> None:
    model = small_model()
    sums = random_sums(model, norm, torch.Generator().manual_seed(1))
    assert torch.equal(gathered(sums, model, sum_norm=BOUND), gathered(sums, model))


@pytest.mark.parametrize("norm", [3.0, 3.01, 30.0, 1e30])
def test_a_longer_sum_is_shortened_to_the_bound(norm: float) -> None:
    model = small_model()
    sums = random_sums(model, norm, torch.Generator().manual_seed(1))
    found = gathered(sums, model, sum_norm=BOUND)
    # Never above it, rounding included: MVG's theorem needs the bound itself.
    assert BOUND * (1 - 1e-6) < float(found.norm()) <= BOUND
    direction = gathered(sums, model) / norm
    torch.testing.assert_close(found / BOUND, direction, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("norm", [2.5, 2.9, 3.0, 3.2, 4.0, 10.0])
def test_neighbouring_sums_stay_as_close_as_they_were(norm: float) -> None:
    """The projection on a ball is 1-Lipschitz, so the sensitivity remains the clip norm."""
    model, generator = small_model(), torch.Generator().manual_seed(2)
    clip_norm = small_plan().sensitivity
    largest = 0.0
    for trial in range(12):
        sums = random_sums(model, norm, generator)
        record = random_sums(model, clip_norm, generator)
        if trial < 2:  # along the sum, and against it: the worst cases of wrong scalings
            sign = clip_norm / norm * (1 - 2 * trial)
            record = {part: sign * total for part, total in sums.items()}
        more = {part: total + record[part] for part, total in sums.items()}
        before, after = (gathered(one, model, sum_norm=BOUND) for one in (sums, more))
        largest = max(largest, float((after - before).norm()))
        assert largest <= clip_norm + ROUNDING
    # Where nothing is cut off, nothing is gained either.
    if norm <= BOUND:
        assert largest >= clip_norm * (1 - 1e-3)


class OneWeight(nn.Module):
    """A weight whose gradient for a record is that record."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.line.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        answers: Tensor = self.line(inputs)
        return answers


def first_step(values: Tensor, seed: int, **plan: Any) -> float:
    """Return the weight after the first step."""
    model = OneWeight()
    parts = small_plan(clip_norm=1.0, noise_multiplier=0.5, **plan)
    optimizer = optim.SGD(model.parameters(), lr=parts.lot_size)  # undoes the division
    options: dict[str, Any] = {"make": lambda _: optimizer, "seed": seed}
    training = private(model, parts, losses=lambda inputs: -model(inputs).sum(1), **options)
    train(training, steps=1, size=RECORDS, data=values)
    return model.line.weight.item()


def size_of_the_first_lot(seed: int) -> int:
    return len(drawn_records(SeededCoins(seed), RECORDS, small_plan().exact_rate, 0))


def seed_of_a_large_lot() -> int:
    return next(seed for seed in range(99) if size_of_the_first_lot(seed) > small_plan().lot_size)


def test_the_drawn_size_of_the_lot_changes_nothing() -> None:
    """Scaling by it would move neighbouring sums apart by up to twice the clip norm."""
    seed = seed_of_a_large_lot()
    values = torch.ones(RECORDS, 1)
    values[::2] *= -1  # opposite gradients: a large lot whose sum is short
    bound = small_plan().lot_size
    assert first_step(values, seed, sum_norm=bound) == first_step(values, seed)


def test_a_step_on_a_large_lot_of_equal_gradients_is_shortened() -> None:
    seed = seed_of_a_large_lot()
    values, bound = torch.ones(RECORDS, 1), small_plan().lot_size
    size = size_of_the_first_lot(seed)
    free, bounded = first_step(values, seed), first_step(values, seed, sum_norm=bound)
    assert size > bound
    assert free - bounded == pytest.approx(size - bound, abs=1e-3)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "3"])
def test_bad_bounds(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match="sum_norm"):
        small_plan(sum_norm=value)


def test_exact_sums_are_not_scaled() -> None:
    with pytest.raises(InvalidParameterError, match=r"sum_norm=3\.0.*mode='fast'"):
        private(small_model(), small_plan(sum_norm=BOUND), mode="exact")


def test_plans_without_a_bound_keep_their_digest() -> None:
    # Spending files of earlier versions know plans by the digest of these fields.
    names = [
        "records",
        "lot_size",
        "steps",
        "clip_norm",
        "delta",
        "epsilon",
        "noise_multiplier",
        "views",
    ]
    fields = {name: getattr(small_plan(), name) for name in names} | {"accountant": "pld"}
    expected = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    assert small_plan().digest == expected
    assert small_plan(sum_norm=BOUND).digest != small_plan().digest
