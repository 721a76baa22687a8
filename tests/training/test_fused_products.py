"""The kernel that forms a convolution's gradients for every example, against float64."""

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.kernels.geometry import Geometry
from matrixdp.training.layers import convolution
from matrixdp.training.layers.convolution import ConvolutionUse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

# channels, made; kernel, stride, padding and dilation
SHAPES = [
    (64, 64, (3, 3), (1, 1), (1, 1), (1, 1)),
    (128, 70, (3, 3), (2, 2), (1, 1), (1, 1)),
    (3, 16, (5, 5), (1, 1), (2, 2), (1, 1)),
    (20, 130, (2, 3), (1, 3), (1, 2), (3, 2)),
    (64, 32, (1, 1), (2, 2), (0, 0), (1, 1)),
]
KINDS = [(torch.float32, 2e-3), (torch.bfloat16, 2e-6)]
ORDERS = [torch.contiguous_format, torch.channels_last]
EXAMPLES, VIEWS = 5, 2


def random(seed: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to("cuda")


def truth(inputs: Tensor, outputs: Tensor, weight: Tensor, examples: int, **options: Any) -> Tensor:
    """Return the gradient of every example in float64."""
    found = []
    for rows, gradient in zip(inputs.chunk(examples), outputs.chunk(examples), strict=True):
        value = (functional.conv2d(rows.double(), weight, **options) * gradient.double()).sum()
        found.append(torch.autograd.grad(value, weight)[0])
    return torch.stack(found)


def in_order(products: Tensor, columns: int) -> Tensor:
    """Return gradients of the kernel in the order of a weight's axes."""
    return products.unflatten(4, (columns, -1)).permute(0, 2, 3, 5, 1, 4).flatten(1, 2)


@pytest.mark.parametrize("orders", [(a, b) for a in ORDERS for b in ORDERS], ids=str)
@pytest.mark.parametrize(("kind", "tolerance"), KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_norms_and_sums(
    shape: Any, kind: torch.dtype, tolerance: float, orders: tuple[torch.memory_format, ...]
) -> None:
    from matrixdp.training.kernels.fused_products import FusedProducts  # noqa: PLC0415

    channels, made, kernel, stride, padding, dilation = shape
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    inputs = random(1, EXAMPLES * VIEWS, channels, 9, 8).to(kind)
    weight = torch.zeros(made, channels, *kernel, dtype=torch.float64, device="cuda")
    weight.requires_grad_()
    outputs = random(2, *functional.conv2d(inputs.double(), weight, **options).shape).to(kind)
    expected = truth(inputs, outputs, weight, EXAMPLES, **options)
    inputs, outputs = (
        part.to(memory_format=order) for part, order in zip((inputs, outputs), orders, strict=True)
    )
    fused = FusedProducts(inputs, outputs, Geometry(kernel, stride, dilation, padding, 1), EXAMPLES)
    bounds, products = fused.bounds_and_products()
    found = in_order(products, kernel[1])
    assert float((found - expected).norm() / expected.norm()) < tolerance
    norms = products.double().flatten(1).norm(dim=1)
    assert bool((bounds.values * (1.0 + bounds.share) >= norms).all())
    torch.testing.assert_close(bounds.values, norms, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(fused.bounds().values, bounds.values, rtol=0.0, atol=0.0)
    for example in range(EXAMPLES):
        # The second pass forms the very numbers whose norms were taken.
        alone = torch.eye(EXAMPLES, device="cuda")[example]
        assert torch.equal(fused.weighted_sum(alone, scaled=False), products[example])
    weights = random(3, EXAMPLES).abs()
    total = torch.tensordot(weights.double(), expected, 1)
    for scaled in (False, True):
        found = in_order(fused.weighted_sum(weights, scaled=scaled)[None], kernel[1])[0]
        # Scaled gradients are rounded to their own type once more.
        most = 4e-3 if scaled else tolerance
        assert float((found - total).norm() / total.norm()) < most


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_a_layer_takes_the_kernel(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    monkeypatch.setattr(convolution, "_MOST_KEPT_BYTES", 1 << 29 if kept else 0)
    module = nn.Conv2d(16, 32, 3, padding=1, device="cuda")
    inputs, outputs = random(4, 6, 16, 20, 20).to(kind), random(5, 6, 32, 20, 20).to(kind)
    # Images are smaller than gradients, which are kept by their size alone.
    inputs, outputs = inputs[..., :9, :9], outputs[..., :9, :9]
    use = ConvolutionUse(module, inputs, outputs, 6)
    assert use._fused is not None
    parameter = use.parameters[0]
    bounds = use.norm_bounds()[parameter]
    assert (use._kept is not None) == kept
    weights = random(6, 6).abs()
    total = use.weighted_sum(weights)[parameter]
    weight = module.weight.detach().double().requires_grad_()
    expected = truth(inputs, outputs, weight, 6, padding=1)
    norms = expected.flatten(1).norm(dim=1)
    torch.testing.assert_close(bounds.values, norms, rtol=5e-3, atol=0.0)
    whole = torch.tensordot(weights.double(), expected, 1)
    assert float((total - whole).norm() / whole.norm()) < 5e-3


def test_full_precision_is_not_the_kernels() -> None:
    module = nn.Conv2d(16, 32, 3, padding=1, device="cuda")
    inputs, outputs = random(4, 6, 16, 9, 9), random(5, 6, 32, 9, 9)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert ConvolutionUse(module, inputs, outputs, 6)._fused is None
    assert ConvolutionUse(module, inputs, outputs, 6)._fused is not None


def test_images_for_16_bits() -> None:
    from matrixdp.training.kernels.fused_layout import channels_last  # noqa: PLC0415

    whole = random(7, 3, 70, 9, 8)
    for images in (whole, whole.to(memory_format=torch.channels_last), whole[:, ::2, 1:5]):
        found = channels_last(images, torch.bfloat16)
        assert found.stride(1) == 1
        assert torch.equal(found, images.to(torch.bfloat16))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("spoilt", [math.nan, math.inf])
def test_an_example_that_weighs_nothing_adds_nothing(*, scaled: bool, spoilt: float) -> None:
    from matrixdp.training.kernels.fused_products import FusedProducts  # noqa: PLC0415

    inputs, outputs = random(1, 6, 16, 12, 12), random(2, 6, 32, 12, 12)
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), 1)
    weights = torch.tensor([0.5, 0.0, 1.0, 0.0, 0.25, 1.0], device="cuda")
    expected = FusedProducts(inputs, outputs, geometry, 6).weighted_sum(weights, scaled=scaled)
    inputs[1], outputs[3, 0] = spoilt, spoilt
    found = FusedProducts(inputs, outputs, geometry, 6).weighted_sum(weights, scaled=scaled)
    assert torch.equal(found, expected)
    # The test above can fail: with another weight the numbers count.
    weights[1] = 0.125
    assert not torch.equal(
        FusedProducts(inputs, outputs, geometry, 6).weighted_sum(weights, scaled=scaled), expected
    )


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(7, 3, 5, 5), (4, 64, 33, 40), (1, 1, 1, 1)])
def test_rows_are_scaled_and_left_out(
    shape: tuple[int, ...], kind: torch.dtype, order: torch.memory_format
) -> None:
    from matrixdp.training.kernels.fused_scaling import can_scale, scaled_rows  # noqa: PLC0415

    values = random(3, *shape).to(kind).contiguous(memory_format=order)
    weights = torch.linspace(0.0, 1.0, len(values), device="cuda")
    values[0] = math.nan
    assert can_scale(values)
    found = scaled_rows(values, weights)
    scale = weights[:, None, None, None]
    expected = torch.where(scale == 0.0, 0.0, values.float() * scale)
    assert torch.equal(found, expected)
    assert found.stride() == values.stride()
    assert not can_scale(values.double())
    assert not can_scale(random(4, 3, 4, 6, 6)[:, :, ::2])
