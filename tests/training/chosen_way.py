"""The way in which a training forms the gradients of a model, against brute force."""

import warnings
from collections.abc import Callable
from functools import partial

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.training.checks.model import ModelCheck, made_up_batches
from matrixdp.training.lots.records import record_source
from matrixdp.training.model.trainable import Trainable
from training.brute_force import Losses, brute_force, one_loss_per_row
from training.small_training import sgd, small_plan

__all__ = ["AT_ONCE", "BY_LAYER", "ONE_BY_ONE", "Calls", "check_training"]

BY_LAYER = "layer by layer"
AT_ONCE = "for all records at once by torch.func.vmap"
ONE_BY_ONE = "for one record after another"


class Calls(nn.Module):
    """A model of one layer that is called as a test wants it."""

    def __init__(self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self.call(self.layer, inputs)


def check_training(
    model: nn.Module,
    inputs: Tensor,
    examples: int | None = None,
    *,
    losses: Losses = one_loss_per_row,
    bound: float = 0.7,
) -> str:
    """Compare a sum as a training forms it with brute force; return how the training does that."""
    number = len(inputs) if examples is None else examples
    views = len(inputs) // number
    plan = small_plan(clip_norm=bound, views=views)
    trainable = Trainable(model, (sgd(model),), plan, "fast")
    check = ModelCheck(model, trainable, views=views, debug=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the model is run ")
        draws = made_up_batches(record_source(inputs), views)
        chosen = check.run(partial(losses, model), draws)
    found = chosen.gradients(inputs, number).sums
    assert all(part.grad is None for part in model.parameters())
    expected, _ = brute_force(model, inputs, number, (bound,), losses=losses)
    size = max(float(total.abs().max()) for total in expected.values())
    for parameter, name in trainable.names.items():
        total = found[parameter].to(torch.float32)
        torch.testing.assert_close(total, expected[name], rtol=1e-3, atol=2e-5 * size)
    return chosen.name
