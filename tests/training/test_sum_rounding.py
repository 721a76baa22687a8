"""Neighbouring lots move the sum of the mode ``fast`` by one clip norm, on crafted records too."""

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from matrixdp.training.noisy_step import NoisyStep, Summed
from torch import Tensor, nn

from matrixdp.training import PrivateTraining
from training.small_training import sgd, small_plan

BATCH = 256
# The sum of the first records with the one that neighbours differ by: where the spacing of float32
# doubles, to 2**-7.
POWER = 2**16
ABOVE_HALF_OF_THE_SPACING = 2.0**-8 * (1.0 + 2.0**-12)


def sum_without_noise(records: Tensor, monkeypatch: pytest.MonkeyPatch, *, captured: bool) -> float:
    """Return the sum that the only step of a training is about to add noise to."""
    found: list[float] = []

    def take(_step: NoisyStep, total: Summed, _number: int) -> None:
        (only,) = total.sums.values()
        found.append(float(only))

    monkeypatch.setattr(NoisyStep, "take", take)
    model = nn.Linear(1, 1, bias=False)
    number = len(records)
    plan = small_plan(records=number, lot_size=number, steps=1, clip_norm=1.0)
    training = PrivateTraining(model, sgd(model), plan, seed=1)
    if captured:
        training.captured_step(records, lambda rows: model(rows)[:, 0], batch_size=BATCH)()
    else:
        for rows in next(training.lots(records)).batches(BATCH):
            training.accumulate(model(rows)[:, 0])
        training.step()
    return found[0]


@pytest.mark.parametrize("captured", [False, True])
def test_crafted_batches_do_not_move_neighbours_apart(
    monkeypatch: pytest.MonkeyPatch, *, captured: bool
) -> None:
    one = sum_without_noise(torch.full((BATCH, 1), 2.0), monkeypatch, captured=captured) / BATCH
    rest = POWER - POWER * one  # what clipping leaves off to be on the safe side
    first = [2.0] * (POWER - 1) + [rest] + [0.0] * (BATCH - 1)
    # One of these in each batch: in float32 they count double beyond the power of two.
    after = ([ABOVE_HALF_OF_THE_SPACING] + [0.0] * (BATCH - 1)) * 2**8
    lots = torch.tensor([*first, 2.0, *after]), torch.tensor(first + after)
    more, less = (sum_without_noise(lot[:, None], monkeypatch, captured=captured) for lot in lots)
    assert 0.99 < more - less <= 1.0  # 1.98 where batches were added up in float32
