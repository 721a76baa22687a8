"""Normalisation layers, against float64: what their sums lose to rounding."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.normalisation import normalisation_use

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("first", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("mean", [0.0, 1e3])
@pytest.mark.parametrize("last", [False, True])
def test_outliers_and_large_means(
    device: str, groups: int, first: float, mean: float, *, last: bool
) -> None:
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(2, 16, 32, 32, generator=generator) + mean
    inputs[:, :: 16 // groups, 0, 0] = first + mean
    gradient = torch.randn(2, 16, 32, 32, generator=generator)
    order = torch.channels_last if last else torch.contiguous_format
    inputs, gradient = (
        part.to(device).contiguous(memory_format=order) for part in (inputs, gradient)
    )
    layer = nn.GroupNorm(groups, 16, device=device)
    found = normalisation_use(layer, inputs, gradient, 2).gradients()[layer.weight]
    normalised = functional.group_norm(inputs.double(), groups, eps=layer.eps)
    expected = (gradient.double() * normalised).sum((2, 3))
    error = (found.double() - expected).norm() / expected.norm()
    # Inputs of size 1e3 to 1e4 have a resolution of 1e-4 to 1e-3 in float32; a mean has that too.
    assert float(error) < 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda whole: whole[:, :3].contiguous(),
        lambda whole: whole[:, :3],
        lambda whole: whole[:, :1].expand(-1, 3, -1, -1),
    ],
    ids=["whole", "part", "expanded"],
)
def test_inputs_of_any_strides(
    make: Callable[[Tensor], Tensor], device: str, *, last: bool
) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = make(torch.randn(4, 6, 5, 5, generator=generator).to(device))
    order = torch.channels_last if last else torch.contiguous_format
    gradient = torch.randn(4, 3, 5, 5, generator=generator).to(device)
    layer = nn.InstanceNorm2d(3, affine=True, device=device)
    found, expected = (
        normalisation_use(layer, *parts, 4).gradients()
        for parts in (
            (inputs, gradient.contiguous(memory_format=order)),
            (inputs.contiguous(), gradient),
        )
    )
    for parameter in layer.parameters():
        torch.testing.assert_close(found[parameter], expected[parameter])
