"""Gram convolutions and sums of normalisation layers; on a GPU each has a kernel of its own."""

import copy
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.kernels.geometry import Geometry
from matrixdp.training.layers import convolution
from matrixdp.training.layers.normalisation import NormalisationLayer, normalisation_use
from matrixdp.training.layers.shifted_gram import norms_of_patches
from training.brute_force import brute_force, clipped

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]
# kernel, stride, padding and dilation
SHAPES = [
    ((3, 3), (1, 1), (1, 1), (1, 1)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 2), (2, 1), (0, 1), (1, 1)),
    ((3, 3), (1, 1), (2, 2), (2, 2)),
    ((2, 3), (1, 3), (1, 2), (3, 2)),
    ((1, 1), (2, 2), (0, 0), (1, 1)),
    ((1, 5), (1, 1), (0, 2), (1, 1)),
]


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_norms_of_patches(device: str, shape: Any, kind: torch.dtype) -> None:
    kernel, stride, padding, dilation = shape
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    inputs = random(1, 3, 9, 7, 6).to(device, kind)
    weight = torch.zeros(8, 9, *kernel, dtype=torch.float64, device=device, requires_grad=True)
    outputs = random(2, *functional.conv2d(inputs.double(), weight, **options).shape)
    outputs = outputs.to(device, kind)
    truth = []
    for rows, gradient in zip(inputs.double(), outputs.double(), strict=True):
        value = (functional.conv2d(rows[None], weight, **options) * gradient[None]).sum()
        truth.append(torch.autograd.grad(value, weight)[0].norm())
    geometry = Geometry(kernel=kernel, stride=stride, dilation=dilation, padding=padding, groups=1)
    values, share = norms_of_patches(inputs, outputs, geometry, rounding=0.0)
    expected = torch.stack(truth)
    assert bool((values * (1.0 + share) >= expected).all())
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=0.0)


class Wide(nn.Module):
    """A convolution whose Gram matrices are cheaper than its gradients, and a normalisation."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = nn.Conv2d(48, 64, 3, **options)
        self.normalisation = nn.GroupNorm(4, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.head(torch.tanh(self.normalisation(self.layer(inputs))).mean((2, 3)))
        return made


def squares(model: nn.Module, inputs: Tensor) -> Tensor:
    made: Tensor = model(inputs)
    return made.square().sum(1) + made[:, 0]


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(
    "options",
    [{}, {"padding": 1}, {"stride": 2, "padding": 1}, {"padding": "same", "dilation": 2}],
    ids=str,
)
@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_model(
    device: str,
    options: dict[str, Any],
    memory: torch.memory_format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def counted(*arguments: Any) -> NormBounds:
        calls.append(arguments)
        return norms_of_patches(*arguments)

    monkeypatch.setattr(convolution, "norms_of_patches", counted)
    torch.manual_seed(4)
    model = Wide(**options).to(device).to(memory_format=memory)  # type: ignore[call-overload]
    wide = copy.deepcopy(model).double().to(memory_format=torch.contiguous_format)
    rows = random(5, 6, 48, 5, 4).to(device)
    inputs = rows.to(memory_format=memory)
    found = clipped(model, inputs, 6, bounds=(0.05,), losses=squares)
    assert len(calls) == 1
    sums, norms = brute_force(wide, rows.double(), 6, bounds=(0.05,), losses=squares)
    # A GPU may run the model in TF32.
    rtol = 2e-3 if device == "cpu" else 2e-2
    torch.testing.assert_close(found.norms.cpu(), norms.cpu(), rtol=rtol, atol=0.0)
    for name, parameter in model.named_parameters():
        total = sums[name].float()
        atol = rtol * float(total.abs().max())
        torch.testing.assert_close(found.sums[parameter], total, rtol=rtol, atol=atol)


@pytest.mark.parametrize("kinds", [(torch.float32,) * 2, (torch.float32, torch.bfloat16)], ids=str)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(
    "layer",
    [nn.GroupNorm(3, 12), nn.GroupNorm(12, 12), nn.InstanceNorm2d(12, affine=True)],
    ids=str,
)
@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_normalisations(
    device: str,
    layer: NormalisationLayer,
    memory: torch.memory_format,
    kinds: tuple[torch.dtype, torch.dtype],
) -> None:
    layer = copy.deepcopy(layer).to(device)
    # Means far from zero, where sums of squares cancel. Four examples of two rows.
    inputs = (random(6, 8, 12, 9, 5) + 20.0).to(device, kinds[0]).to(memory_format=memory)
    outputs = random(7, 8, 12, 9, 5).to(device, kinds[1])
    found = normalisation_use(layer, inputs, outputs, 4).gradients()
    wide = copy.deepcopy(layer).double()
    parameters = list(wide.parameters())
    # In one memory format: torch may crash in the backward pass of others.
    values, gradients = (part.double().contiguous() for part in (inputs, outputs))
    for example in range(4):
        rows = slice(2 * example, 2 * example + 2)
        value = (wide(values[rows]) * gradients[rows]).sum()
        expected = torch.autograd.grad(value, parameters)
        for parameter, part in zip(layer.parameters(), expected, strict=True):
            torch.testing.assert_close(
                found[parameter][example], part.float(), rtol=1e-3, atol=1e-3
            )
