"""Norms that must not be too small: terms that cancel, numbers that underflow, 16 bits."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers import convolution
from matrixdp.training.layers.gram import gram
from matrixdp.training.layers.precision import factor_rounding, multiplies_coarsely
from matrixdp.training.layers.tracing import Tracer
from matrixdp.training.layers.use import KeptGradients, MeasuredUse, norm_bounds_of
from matrixdp.training.lots.clipping import clipped_sum


class Given(torch.autograd.Function):
    """A loss of each row whose gradient is what a test wants."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return outputs.flatten(1).sum(1).to(torch.float32) * 0.0

    @staticmethod
    def backward(ctx: Any, _losses: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None


def contribution(model: nn.Module, inputs: Tensor, gradient: Tensor, bound: float) -> float:
    """Return the norm of what a single example adds to the clipped sum."""
    groups = dict.fromkeys(model.parameters(), 0)
    tracer = Tracer(model, groups)
    with tracer.on():
        losses = Given.apply(model(inputs), gradient)  # type: ignore[no-untyped-call]
        uses = tracer.uses(losses, 1)
    sums = clipped_sum(uses, groups, (bound,), half=tracer.half).sums
    return float(torch.cat([part.double().flatten() for part in sums.values()]).norm())


def cancelling(positions: int, width: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return rows and gradients of pairs of positions that cancel but for the last bits."""
    inputs = torch.randn(1, positions, width) + 1.0
    inputs[:, 1::2] = inputs[:, ::2] * (1.0 + 2e-7)
    gradient = torch.randn(1, positions, width) * scale
    gradient[:, 1::2] = -gradient[:, ::2]
    return inputs, gradient


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e7, 1e9])
@pytest.mark.parametrize(("positions", "width"), [(64, 4), (512, 8), (4, 64)])
def test_terms_that_cancel_in_a_linear_layer(positions: int, width: int, scale: float) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        layer = nn.Linear(width, width, bias=False)
        inputs, gradient = cancelling(positions, width, scale)
        assert contribution(layer, inputs, gradient, 1.0) <= 1.0


@pytest.mark.parametrize("scale", [1e3, 1e5, 1e7, 1e9])
@pytest.mark.parametrize("kept", [True, False])
def test_terms_that_cancel_in_a_convolution(
    scale: float, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    if not kept:
        monkeypatch.setattr(convolution, "_MOST_KEPT_BYTES", 0)
    for seed in range(10):
        torch.manual_seed(seed)
        layer = nn.Conv2d(4, 4, 3, bias=False)
        pixels = 1.0 + 2e-7 * torch.randn(1, 1, 20, 20)
        inputs = torch.randn(1, 4, 1, 1) * pixels
        gradient = torch.randn(1, 4, 18, 18) * scale
        gradient -= gradient.mean((2, 3), keepdim=True)
        assert contribution(layer, inputs, gradient, 1.0) <= 1.0


@pytest.mark.parametrize("positions", [1, 4])
def test_squares_that_underflow(positions: int) -> None:
    # The squares of the gradients are zero in float32, and the inputs make up for it.
    layer = nn.Linear(512, 512, bias=False)
    inputs = torch.full((1, positions, 512), 1e17)
    gradient = torch.full((1, positions, 512), 1.9e-23)
    assert 512 * positions * 1e17 * 1.9e-23 > 9e-4
    for bound in (1e-4, 1e-6):
        assert contribution(layer, inputs, gradient, bound) <= bound


def test_a_convolution_whose_squares_underflow() -> None:
    layer = nn.Conv2d(64, 64, 3, bias=False)
    inputs = torch.full((1, 64, 5, 5), 1e17)
    gradient = torch.full((1, 64, 3, 3), 1.9e-23)
    assert contribution(layer, inputs, gradient, 1e-5) <= 1e-5


@pytest.mark.parametrize("bound", [1e-10, 1e-6, 1e-3, 1.0])
def test_factors_that_would_underflow(bound: float) -> None:
    # In float32 the smallest factors are rounded by up to a half of themselves.
    layer = nn.Linear(4, 4, bias=False)
    for seed in range(50):
        torch.manual_seed(seed)
        inputs, gradient = 9e18 * torch.rand(2, 1, 4).clamp(min=0.1)
        assert contribution(layer, inputs, gradient, bound) <= bound


def test_factors_that_would_underflow_for_an_embedding() -> None:
    table = nn.Embedding(3, 1)
    gradient = torch.full((1, 1, 1), 1.5e19)
    for bound in (1e-20, 1.4e-26, 3e-26):
        assert contribution(table, torch.tensor([[1]]), gradient, bound) <= bound


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("positions", [1, 2])
def test_scaled_gradients_that_underflow(positions: int, *, flush: bool) -> None:
    # The factor is as small as it may be, and what it scales is not a normal number any more.
    layer = nn.Linear(4, 4, bias=False)
    added = []
    if flush and not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers to zero")
    try:
        for seed in range(40):
            torch.manual_seed(seed)
            inputs = 8e18 * torch.rand(1, positions, 4).clamp(min=0.1)
            gradient = 2.0**-90 * torch.rand(1, positions, 4)
            norm = float((gradient[0].double().T @ inputs[0].double()).norm())
            bounds = [norm * 2.0**-power for power in range(0, 51, 5)]
            added += [(contribution(layer, inputs, gradient, part), part) for part in bounds]
    finally:
        torch.set_flush_denormal(False)
    assert all(size <= bound for size, bound in added)


@pytest.mark.parametrize(("length", "added"), [(2.0**48, 1.0), (2.0**51, 0.0)])
def test_examples_far_longer_than_their_bound_add_nothing(length: float, added: float) -> None:
    weight = nn.Parameter(torch.zeros(1))
    use = KeptGradients({weight: torch.full((1, 1), length)})
    measured = [MeasuredUse("layer", use, use.norm_bounds())]
    total = float(clipped_sum(measured, {weight: 0}, (1.0,)).sums[weight])
    assert total == pytest.approx(added, rel=1e-5)


def test_factors_that_are_rounded_up() -> None:
    # A bound that is the very norm, without a share to spare for what follows.
    weight = nn.Parameter(torch.zeros(1))
    for number in range(200):
        gradient = torch.tensor([[3.0 + number / 7.0]])
        use = KeptGradients({weight: gradient})
        measured = [MeasuredUse("layer", use, {weight: NormBounds(gradient[:, 0], 0.0)})]
        bound = 1.0 + number / 999.0
        assert float(clipped_sum(measured, {weight: 0}, (bound,)).sums[weight]) <= bound


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [lambda: nn.Linear(1000, 10), lambda: nn.Conv1d(1000, 10, 1)])
def test_numbers_of_sixteen_bits(make: Callable[[], nn.Module], dtype: torch.dtype) -> None:
    model = make().to(dtype)
    shape = (1, 1000) if isinstance(model, nn.Linear) else (1, 1000, 4)
    inputs = torch.full(shape, 300.0, dtype=dtype)
    outputs = model(inputs)
    for multiple in (1, 3, 5):
        # The smallest numbers that float16 has: a share of them is rounded to a whole one.
        gradient = torch.full_like(outputs, multiple * 2.0**-24)
        for bound in (1e-3, 1.3e-3, 2e-3):
            assert contribution(model, inputs, gradient, bound) <= bound


class OnGPU(Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


def test_gram_matrices_of_float64_on_a_gpu() -> None:
    # torch.bmm has another type for its result only where its factors have 16 bits.
    rows = torch.randn(2, 5, 3, dtype=torch.float64)
    found = gram(rows.as_subclass(OnGPU)).as_subclass(Tensor)
    torch.testing.assert_close(found, (rows @ rows.transpose(1, 2)).float())


def test_gram_matrices_have_all_bits_of_float32() -> None:
    rows = torch.randn(2, 64, 512)
    former = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = gram(rows).double()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(former)
    torch.testing.assert_close(found, rows.double() @ rows.double().mT, rtol=0.0, atol=1e-2)


@pytest.mark.parametrize("width", [1, 64, 500])
def test_coarse_products_do_not_lift_an_example_over_its_bound(width: int) -> None:
    former = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        for value in (1.0 + 2.0**-8 - 2.0**-12, 1.0 + 2.0**-11 - 2.0**-20):
            # Both factors are rounded up where there are fewer bits.
            layer = nn.Linear(width, width, bias=False, device=device)
            inputs = torch.full((1, width), value, device=device)
            gradient = torch.full((1, width), 3.0 * value, device=device)
            assert contribution(layer, inputs, gradient, 1.0) <= 1.0
    finally:
        torch.set_float32_matmul_precision(former)


def test_gradients_that_underflow_by_themselves() -> None:
    layer = nn.Linear(3, 10)
    layer.weight.requires_grad_(False)
    gradient = torch.full((1, 10), 1.9e-23)
    assert contribution(layer, torch.ones(1, 3), gradient, 3e-23) <= 3e-23


def test_the_largest_share_counts_wherever_it_comes() -> None:
    wide, narrow = (nn.Parameter(torch.zeros(size)) for size in (4096, 1))
    norms = []
    for order in ((wide, narrow), (narrow, wide)):
        uses = [KeptGradients({part: torch.ones(1, part.numel())}) for part in order]
        measured = [MeasuredUse("layer", use, use.norm_bounds()) for use in uses]
        norms.append(float(clipped_sum(measured, {wide: 0, narrow: 0}, (1.0,)).norms))
    assert norms[0] == norms[1] >= 4097**0.5 * (1.0 + 4096 * 2.0**-24)


@pytest.mark.parametrize("width", [4096, 4097, 9000])
def test_shares_cover_what_rounding_may_take(width: int) -> None:
    # Any order of adding up k squares may lose a share of k / 2 units of float32.
    values, share = norm_bounds_of(torch.ones(1, width))
    assert float(values) * (1.0 + share) >= width**0.5
    assert share >= min(width, 4096) / 2.0 * 2.0**-24


def nearly_cancelling(seed: int, size: float) -> tuple[list[Tensor], list[Tensor]]:
    """Return two inputs and two gradients of bfloat16 whose products nearly add up to nothing.

    They differ in size, so that scaling them rounds them differently.
    """
    first, second, third = 1.0 + torch.rand(3, generator=torch.Generator().manual_seed(seed))
    gradients = [first.bfloat16(), second.bfloat16()]
    inputs = [third.bfloat16()]
    inputs.append(-(gradients[0].float() * inputs[0].float() / gradients[1].float()).bfloat16())
    return inputs, [size * part for part in gradients]


def lengthened(parts: list[Tensor], *shape: int) -> Tensor:
    return torch.stack([part.expand(shape) for part in parts])[None]


@pytest.mark.parametrize("size", [32.0, 256.0, 8192.0])
def test_scaling_in_16_bits_spoils_terms_that_cancel(size: float) -> None:
    linear = nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    kernel = nn.Conv1d(8, 8, 1, bias=False, dtype=torch.bfloat16)
    for seed in range(300):
        inputs, gradients = nearly_cancelling(seed, size)
        # Two positions each; their Gram matrices are cheaper than the gradients.
        rows, slopes = lengthened(inputs, 4), lengthened(gradients, 4)
        assert contribution(linear, rows, slopes, 1.0) <= 1.0
        rows, slopes = (lengthened(part, 8).mT.contiguous() for part in (inputs, gradients))
        assert contribution(kernel, rows, slopes, 1.0) <= 1.0


@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_whatever_multiplies_coarsely_is_noticed(kind: str) -> None:
    backend = getattr(torch.backends.mkldnn, kind)
    former = backend.fp32_precision
    assert not multiplies_coarsely()
    backend.fp32_precision = "bf16"
    try:
        assert multiplies_coarsely()
        # Both factors are rounded, not only the one that is scaled.
        assert factor_rounding(torch.ones(1)) == 2.0 * factor_rounding(torch.ones(1).bfloat16())
    finally:
        backend.fp32_precision = former


class Sequence(nn.Module):
    """An LSTM that returns its outputs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(64, 2, batch_first=True, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)[0]
        return outputs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_lstm_of_sixteen_bits(dtype: torch.dtype) -> None:
    # The gradients of its gates are computed here, and are among the smallest numbers of float16.
    for seed in range(20):
        torch.manual_seed(seed)
        model = Sequence().to(dtype)
        with torch.no_grad():
            for part in model.parameters():
                part.mul_(1e-3)
        inputs = (100.0 * torch.randn(1, 1, 64)).to(dtype)
        gradient = torch.full((1, 1, 2), 1e-6, dtype=dtype)
        for bound in (3e-5, 1e-4, 1.5e-4):
            assert contribution(model, inputs, gradient, bound) <= bound
