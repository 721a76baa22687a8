"""Autocast around a whole step: the model follows it, and measuring and clipping do not."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.brute_force import clipped
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
BOUND = 0.01


KINDS: list[torch.dtype] = []  # not in the layer, where they would be forgotten


class Own(nn.Module):
    """A layer of a kind that is not known, which is run again under its own autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, generator=torch.Generator().manual_seed(2)))

    def forward(self, inputs: Tensor) -> Tensor:
        made = functional.linear(inputs, self.weight)
        KINDS.append(made.dtype)
        return made


class First(nn.Module):
    """The first tensor of several, as an LSTM returns them."""

    def forward(self, inputs: Tensor | tuple[Tensor, ...]) -> Tensor:
        return inputs if isinstance(inputs, Tensor) else inputs[0]


def autocast_losses(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.autocast(inputs.device.type, torch.bfloat16):
        outputs = model(inputs).flatten(1).float()
        slopes = torch.linspace(-1.0, 1.5, outputs.shape[1], device=outputs.device)
        return (outputs * slopes).sum(1) + 0.1 * outputs.square().sum(1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(64, 64), (2, 64)),  # by Gram matrices
        (nn.Linear(8, 8), (20, 8)),  # by gradients
        (nn.Linear(8, 8), (8,)),
        (nn.Conv2d(16, 16, 3, padding=1), (16, 4, 4)),  # by Gram matrices
        (nn.Conv2d(2, 3, 3), (2, 8, 8)),  # by gradients
        (nn.GroupNorm(2, 4), (4, 5, 5)),
        (nn.LSTM(8, 8, batch_first=True), (5, 8)),
        (Own(), (8,)),
    ],
    ids=str,
)
def test_sums_and_norms_stay_the_same(
    device: str, layer: nn.Module, shape: tuple[int, ...]
) -> None:
    model = nn.Sequential(layer, First()).to(device)
    inputs = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)).to(device)
    alone = clipped(model, inputs, 6, bounds=(BOUND,), losses=autocast_losses)
    with torch.autocast(device, torch.bfloat16):
        around = clipped(model, inputs, 6, bounds=(BOUND,), losses=autocast_losses)
    torch.testing.assert_close(around.norms, alone.norms, rtol=1e-6, atol=0.0)
    for parameter, total in alone.sums.items():
        atol = 1e-6 * float(total.abs().max())
        torch.testing.assert_close(around.sums[parameter], total, rtol=1e-6, atol=atol)


def test_a_layer_that_is_run_again_keeps_its_own_autocast() -> None:
    layer = Own()
    KINDS.clear()
    with torch.autocast("cpu", torch.bfloat16):
        clipped(layer, torch.randn(6, 8), 6, losses=autocast_losses)
        assert torch.is_autocast_enabled("cpu")
    assert [torch.bfloat16] * 2 == KINDS  # in the model, and for its gradients


@pytest.mark.parametrize("device", DEVICES)
def test_no_example_contributes_more(device: str) -> None:
    # Gradients that nearly cancel over the positions of an example: from Gram matrices of 16 bits,
    # most of these norms come out as zero or far too small.
    layer = nn.Linear(64, 64, bias=False).to(device)
    generator = torch.Generator().manual_seed(3)
    inputs = torch.full((1, 8, 64), 0.5, device=device)
    for _ in range(20):
        up = torch.randn(64, generator=generator)
        down = up + 0.06 * torch.randn(64, generator=generator)
        slopes = torch.stack([up, -down] * 4)[None].bfloat16().to(device)

        def losses(model: nn.Module, rows: Tensor, slopes: Tensor = slopes) -> Tensor:
            with torch.autocast(rows.device.type, torch.bfloat16):
                return (model(rows) * slopes).flatten(1).sum(1)

        with torch.autocast(device, torch.bfloat16):
            found = clipped(layer, inputs, 1, bounds=(BOUND,), losses=losses)
        (total,) = found.sums.values()
        assert float(total.double().norm()) <= BOUND


def autocast_cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast(inputs.device.type, torch.bfloat16):
        return cross_entropy(model, inputs, targets)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("captured", [False, True])
def test_training(device: str, *, captured: bool) -> None:
    found = []
    data = tuple(part.to(device) for part in small_data())
    for around in (False, True):
        model = small_model().to(device)
        losses = partial(autocast_cross_entropy, model)
        training = private(model, small_plan(clip_norm=1.0), losses=losses, seed=1)
        with torch.autocast(device, torch.bfloat16, enabled=around):
            if captured:
                step = training.captured_step(data, batch_size=8)
                while training.progress.steps_left:
                    step()
            else:
                train(training, data=data)
        found.append(weights(model))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


class Optional(nn.Module):
    """A model whose second layer is used by some records only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        made = self.first(inputs)
        return made + self.second(inputs) if float(inputs[0, 0]) > 1.0 else made


@pytest.mark.parametrize("make", [small_model, Optional])
def test_exact_uses_the_weights_of_its_step(make: Callable[[], nn.Module]) -> None:
    # torch casts a weight once within the outermost autocast, whatever happens to it afterwards.
    found = []
    for around in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        model = make()
        losses = partial(autocast_cross_entropy, model)
        training = private(model, losses=losses, seed=1, mode="exact")
        with around:
            train(training)
        found.append(weights(model))
    assert torch.equal(found[0], found[1])
