"""Activations held in 16 bits: what they lose, and bounds that hold for what is left."""

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from matrixdp.training.clipping import clipped_sum  # noqa: E402
from matrixdp.training.layers import convolution, halved  # noqa: E402
from matrixdp.training.layers.convolution import ConvolutionUse  # noqa: E402
from matrixdp.training.recording import MeasuredUse  # noqa: E402
from training.brute_force import brute_force, clipped  # noqa: E402

# Up to where rounding to 11 bits would not overflow.
floats = st.floats(-(2.0**127), 2.0**127, width=32)


@given(st.lists(floats, min_size=2, max_size=20))
def test_what_is_lost(values: list[float]) -> None:
    numbers = torch.tensor([values, [1.0] * len(values)])
    held = halved.halved(numbers)
    assert held.values.dtype == torch.float16
    assert float(torch.frexp(held.scale)[0][0]) == 0.5  # a power of two
    back = held.widened().double()
    largest = float(numbers[0].abs().max())
    # Half a unit of the 11th bit, and what the smallest numbers lose.
    lost = (back - numbers).abs()[0]
    smallest = max(largest * 2.0**-38, 2.0**-126)
    assert bool((lost <= numbers[0].double().abs() * 2.0**-11 + smallest).all())
    # The other examples do not matter.
    assert back[1].tolist() == [1.0] * len(values)


def test_numbers_of_eleven_bits_are_kept() -> None:
    numbers = torch.arange(-2048.0, 2049.0)[None]
    for power in (-100, -14, 0, 17, 100):
        scaled = numbers * 2.0**power
        assert torch.equal(halved.halved(scaled).widened(), scaled)


def test_memory_formats() -> None:
    numbers = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last)
    held = halved.halved(numbers)
    assert held.values.stride() == held.widened().stride() == numbers.stride()
    torch.testing.assert_close(held.widened(), numbers, rtol=2.0**-11, atol=1e-9)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    found = halved.halved(torch.tensor([[1.0, bad], [1.0, 2.0]])).widened()
    assert not bool(found[0, 1].isfinite())
    assert found[1].tolist() == [1.0, 2.0]


@pytest.fixture
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let convolutions be held in 16 bits here too, where no GPU is."""
    monkeypatch.setattr(halved, "_multiplies_in_tf32", lambda _: True)


class Wide(nn.Module):
    """A convolution whose Gram matrices are cheaper than its gradients."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.layer = nn.Conv2d(24, 32, 3, padding=1, **options)
        self.head = nn.Linear(32, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(torch.tanh(self.layer(inputs)).mean((2, 3)))


def squares(model: nn.Module, inputs: Tensor) -> Tensor:
    made: Tensor = model(inputs)
    return made.square().sum(1) + made[:, 0]


def check_against_brute_force(model: nn.Module, inputs: Tensor, rtol: float) -> None:
    found = clipped(model, inputs, len(inputs), bounds=(0.05,), losses=squares)
    sums, norms = brute_force(model, inputs, len(inputs), bounds=(0.05,), losses=squares)
    torch.testing.assert_close(found.norms.cpu(), norms, rtol=rtol, atol=0.0)
    for name, parameter in model.named_parameters():
        total = sums[name]
        size = float(total.abs().max())
        torch.testing.assert_close(found.sums[parameter], total, rtol=rtol, atol=rtol * size)


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("options", [{}, {"bias": False}], ids=str)
def test_against_brute_force(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(numbers: Tensor) -> halved.Halved:
        calls.append(numbers.shape)
        return halved.halved(numbers)

    monkeypatch.setattr(convolution, "halved", counted)
    torch.manual_seed(4)
    check_against_brute_force(Wide(**options), torch.randn(6, 24, 4, 4), rtol=2e-3)
    assert len(calls) == 2


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("size", [1.0, 1e-20, 1e20])
def test_bounds_hold_for_the_numbers_that_are_added_up(size: float) -> None:
    torch.manual_seed(5)
    layer = nn.Conv2d(24, 32, 3, padding=1)
    inputs, outputs = size * torch.randn(5, 24, 4, 4), torch.randn(5, 32, 4, 4)
    use = ConvolutionUse(layer, inputs, outputs, 5)
    weight = use.parameters[0]
    bounds, share = use.norm_bounds()[weight]
    for example in range(5):
        alone = torch.zeros(5, dtype=torch.float64)
        alone[example] = 1.0
        norm = float(use.weighted_sum(alone)[weight].double().norm())
        assert norm <= float(bounds[example]) * (1.0 + share)
        assert norm >= float(bounds[example]) * 0.99


@pytest.mark.parametrize(
    ("change", "held"),
    [
        (lambda x: x, True),
        (lambda x: x.bfloat16(), False),  # has 16 bits already
        (lambda x: x[..., :3], False),  # rows that are not aligned
    ],
)
def test_when_numbers_are_held_in_16_bits(
    change: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch, *, held: bool
) -> None:
    numbers = change(torch.randn(2, 3, 4, 4))
    assert not halved.loses_nothing(numbers, numbers)  # this device does not multiply in TF32
    monkeypatch.setattr(halved, "_multiplies_in_tf32", lambda _: True)
    assert halved.loses_nothing(numbers, numbers) == held


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("allowed", [True, False])
def test_on_a_gpu(*, allowed: bool) -> None:
    former = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        numbers = torch.randn(6, 24, 4, 4, device="cuda")
        assert halved.loses_nothing(numbers, numbers) == allowed
        torch.manual_seed(4)
        check_against_brute_force(Wide().to("cuda"), numbers, rtol=1e-2)
    finally:
        torch.backends.cudnn.allow_tf32 = former


@pytest.mark.usefixtures("tf32")
@pytest.mark.parametrize("power", range(-126, -110, 3))
def test_tiny_gradients_of_huge_inputs(power: int) -> None:
    # A scale of 2**-112 times a weight would have few bits left in float32.
    layer = nn.Conv2d(24, 32, 3, padding=1, bias=False)
    for seed in range(10):
        sizes = 1.0 + torch.rand(2, generator=torch.Generator().manual_seed(seed))
        inputs = torch.full((1, 24, 4, 4), 2.0**100) * sizes[0]
        outputs = torch.full((1, 32, 4, 4), 2.0**power) * sizes[1]
        for bound in (2.0**-20, 2.0**-29):
            use = ConvolutionUse(layer, inputs, outputs, 1)
            (weight,) = use.parameters
            measured = MeasuredUse("layer", use, use.norm_bounds())
            found = clipped_sum([measured], {weight: 0}, (bound,))
            assert float(found.sums[weight].double().norm()) <= bound
