"""Neighbouring lots move the sum of the mode ``fast`` by one clip norm, on crafted records too."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.training.lots.batch import Sums
from matrixdp.training.lots.clipping import ClippedSum
from matrixdp.training.lots.fast_sum import sum_of_lot
from matrixdp.training.lots.lot import Division
from matrixdp.training.lots.records import TensorRecords
from matrixdp.training.noise.noisy_step import NoisyStep
from training.small_training import private, small_plan, train

SIZE = 256
# The sum of the first records with the one that neighbours differ by: where the spacing of float32
# doubles, to 2**-7. Beyond it a batch of just above half of that counts double in float32.
POWER = 2**16
ABOVE_HALF_OF_THE_SPACING = 2.0**-8 * (1.0 + 2.0**-12)


def crafted(one: float) -> tuple[Tensor, Tensor]:
    """Return records of a lot with one more than its neighbour, and of that neighbour.

    Parameters
    ----------
    one : float
        What a record that is clipped counts for, slightly less than 1.
    """
    number = POWER + 350 * SIZE
    batches = list(Division(number, number, SIZE).batches(np.arange(number)))
    records = torch.zeros(number)
    records[:POWER] = 2.0
    records[POWER] = POWER - POWER * one  # what clipping leaves off to be on the safe side
    for batch in [each for each in batches if each[0] > POWER][: 2**8]:
        records[batch[0]] = ABOVE_HALF_OF_THE_SPACING
    neighbour = records.clone()
    # Its loss does not depend on the weight, as if it were not there. The others stay in place.
    neighbour[7] = 0.0
    return records[:, None], neighbour[:, None]


@pytest.mark.parametrize("captured", [False, True])
def test_crafted_batches_do_not_move_neighbours_apart(
    monkeypatch: pytest.MonkeyPatch, *, captured: bool
) -> None:
    found: list[float] = []

    def take(_step: NoisyStep, sums: Sums, _number: int) -> None:
        (only,) = sums.values()
        found.append(float(only))

    def sum_without_noise(records: Tensor) -> float:
        """Return the sum that the only step of a training is about to add noise to."""
        model = nn.Linear(1, 1, bias=False)
        plan = small_plan(records=len(records), lot_size=len(records), steps=1, clip_norm=1.0)
        training = private(model, plan, losses=lambda rows: model(rows)[:, 0], seed=1)
        if captured:
            training.captured_step(records, batch_size=SIZE)()
        else:
            train(training, size=SIZE, data=records)
        return found[-1]

    monkeypatch.setattr(NoisyStep, "take", take)
    one = sum_without_noise(torch.full((SIZE, 1), 2.0)) / SIZE
    more, less = map(sum_without_noise, crafted(one))
    assert 0.99 < more - less <= 1.001


def terms() -> Tensor:
    """Return gradients whose sum in float32 passes three powers of two; each doubles what is off.

    The spacing doubles there, and increments just above half of it count double for a sum beyond
    the power, while a neighbour below it still has what they are.
    """
    parts, total = [], 0.0
    for power in (12, 13, 14):
        ones = 2.0**power - total
        increments = torch.full((2**12,), 2.0 ** (power - 24) * (1.0 + 2.0**-10))
        parts += [torch.ones(int(ones)), increments]
        total += ones + 2**12 * 2.0 ** (power - 23)
    return torch.cat(parts)


class GradientsThemselves:
    at_once = True

    def __call__(self, batch: Tensor, examples: int, *_: object, **_named: object) -> ClippedSum:
        return ClippedSum({WEIGHT: batch.sum(0)}, torch.ones(1, examples))


WEIGHT = nn.Parameter(torch.zeros(1))


def test_batches_of_one_do_not_move_neighbours_apart() -> None:
    lot = terms()
    everyone = np.arange(len(lot))
    moved: list[float] = []
    in_float32: list[float] = []
    for numbers in (everyone, everyone[1:]):
        gradients = GradientsThemselves()
        division = Division(len(lot), len(lot), 1)
        source = TensorRecords((lot[:, None],), alone=True)
        sums = sum_of_lot(gradients, source, numbers, division, views=1, device=lot.device)
        moved.append(float(sums[WEIGHT]))
        in_float32.append(float(np.add.accumulate(lot.numpy()[numbers])[-1]))
    assert in_float32[0] - in_float32[1] == 8.0  # what these records are crafted for
    assert moved[0] - moved[1] <= 1.001
