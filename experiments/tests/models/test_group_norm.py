"""GroupNorm with kernels of its own: PyTorch's answers, and what private training makes of it."""

import pytest
import torch
from torch import Tensor, nn

from matrixdp.training.layers.table import has_rule
from matrixdp_experiments.models.group_norm import GroupNorm
from matrixdp_experiments.models.networks import vgg16
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    clipped,
    seeded,
)

VGG_SHAPES = [(64, 32), (128, 16), (256, 8), (512, 4), (512, 2)]
# Channels, groups, height and width: masks in both directions, single channels, positions, groups.
ODD_SHAPES = [
    *((6, 3, 5, 7), (96, 3, 3, 3), (8, 2, 1, 1), (64, 1, 1, 9), (7, 7, 3, 5), (1, 1, 4, 4)),
    *((1024, 1, 3, 1), (48, 12, 33, 35), (640, 5, 2, 2)),
]
SHAPES = [*((channels, 32, side, side) for channels, side in VGG_SHAPES), *ODD_SHAPES]
# Of the outputs and of the input's gradients: half a unit in the last place, and some for sums.
SUMS = 1e-5
TOLERANCES = {
    torch.bfloat16: 2.0**-8 + SUMS,
    torch.float16: 2.0**-11 + SUMS,
    torch.float32: SUMS,
}

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def drawn(layer: nn.GroupNorm) -> nn.GroupNorm:
    """Return the layer with parameters that matter."""
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    return layer


def channels_last(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def answers(layer: nn.GroupNorm, inputs: Tensor, gradient: Tensor) -> list[Tensor]:
    """Return the output, and the gradients of the input and of the parameters."""
    inputs = inputs.detach().requires_grad_()
    output = layer(inputs)
    found = torch.autograd.grad(output, (inputs, layer.weight, layer.bias), gradient)
    return [output.detach(), *found]


def true_answers(layer: nn.GroupNorm, inputs: Tensor, gradient: Tensor) -> list[Tensor]:
    """Return PyTorch's own in float64 on a processor."""
    true = nn.GroupNorm(layer.num_groups, layer.num_channels, layer.eps, dtype=torch.float64)
    true.load_state_dict({name: part.double() for name, part in layer.state_dict().items()})
    return answers(true, inputs.double().cpu(), gradient.double().cpu())


def check_answers(layer: nn.GroupNorm, inputs: Tensor, gradient: Tensor, slack: float = 1) -> None:
    found = answers(layer, inputs, gradient)
    true = true_answers(layer, inputs, gradient)
    tolerances = [TOLERANCES[inputs.dtype]] * 2 + [SUMS] * 2
    types = [inputs.dtype] * 2 + [torch.float32] * 2
    for ours, right, tolerance, kind in zip(found, true, tolerances, types, strict=True):
        assert ours.dtype == kind
        within = slack * tolerance * float(right.abs().max())
        torch.testing.assert_close(ours.double().cpu(), right, rtol=0.0, atol=within)


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_on_a_processor_it_is_that_of_pytorch(order: torch.memory_format) -> None:
    generator = seeded(1)
    layer, plain = drawn(GroupNorm(4, 8)), nn.GroupNorm(4, 8)
    plain.load_state_dict(layer.state_dict())
    inputs, gradient = (torch.randn(3, 8, 5, 5, generator=generator) for _ in range(2))
    inputs = inputs.contiguous(memory_format=order)
    found, true = answers(layer, inputs, gradient), answers(plain, inputs, gradient)
    assert all(torch.equal(*pair) for pair in zip(found, true, strict=True))
    check_answers(layer, inputs, gradient)


def test_which_images_the_kernels_take() -> None:
    images = torch.zeros(2, 8, 3, 3)
    layer, last = GroupNorm(4, 8), channels_last(images)
    assert layer._is_fit(images.bfloat16())
    assert layer._is_fit(images.half())
    assert layer._is_fit(last)
    assert layer._is_fit(last.bfloat16())
    # A copy in another order would cost what the kernels save.
    assert not layer._is_fit(images)
    assert not layer._is_fit(last.double())
    assert not layer._is_fit(last[:0])
    assert not layer._is_fit(last.flatten(2))
    assert not layer._is_fit(last[:, :4])  # for PyTorch to refuse
    assert not GroupNorm(4, 8, affine=False)._is_fit(last)
    assert not GroupNorm(4, 8).bfloat16()._is_fit(last.bfloat16())
    assert not GroupNorm(4, 12)._is_fit(channels_last(torch.zeros(2, 12, 3, 3)))


def test_vgg_has_it_before_every_activation_under_the_same_names() -> None:
    model = vgg16()
    norms = {name: part for name, part in model.named_modules() if isinstance(part, nn.GroupNorm)}
    assert len(norms) == 13
    assert {type(part) for part in norms.values()} == {GroupNorm}
    names = set(model.state_dict())
    assert {f"{name}.{part}" for name in norms for part in ("weight", "bias")} <= names
    assert len(names) == 2 * (13 + 13 + 2)


class Doubled(GroupNorm):
    """With a forward pass of its own once more."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return 2 * super().forward(input)


def normed() -> nn.Sequential:
    """Return two of them: gradients reach the first through the second."""
    return nn.Sequential(
        *(drawn(GroupNorm(4, 8)), nn.Tanh(), drawn(GroupNorm(2, 8)), nn.ReLU(inplace=True)),
        *(nn.Flatten(), nn.Linear(8 * 25, 3)),
    )


@pytest.mark.parametrize("views", [1, 3])
def test_private_training_knows_it(views: int) -> None:
    generator = seeded(2)
    inputs = channels_last(torch.randn(4 * views, 8, 5, 5, generator=generator))
    # PyTorch 2.13 crashes on a processor where a GroupNorm's input needs no gradient, so it is
    # not first. A layer without a shortcut would warn, and warnings are errors here.
    model = nn.Sequential(nn.Conv2d(8, 8, 1), *normed())
    check_against_brute_force(model, inputs, 4, bounds=(0.7,))


@pytest.mark.filterwarnings("ignore:Doubled has no shortcut")
def test_another_forward_pass_is_not_taken_for_it() -> None:
    assert has_rule(GroupNorm(4, 8))
    assert not has_rule(Doubled(4, 8))
    generator = seeded(3)
    model = nn.Sequential(drawn(Doubled(4, 8)), nn.Flatten(), nn.Linear(8 * 25, 3))
    check_against_brute_force(model, torch.randn(4, 8, 5, 5, generator=generator), bounds=(0.7,))


def cuda_case(
    shape: tuple[int, int, int, int], kind: torch.dtype, mean: float
) -> tuple[GroupNorm, Tensor, Tensor]:
    generator = seeded(4)
    channels, groups, height, width = shape
    values, gradient = (
        torch.randn(3, channels, height, width, generator=generator) for _ in range(2)
    )
    layer = GroupNorm(groups, channels)
    drawn(layer)
    return layer.cuda(), (values + mean).to("cuda", kind), gradient.to("cuda", kind)


@on_gpu
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_kernels(
    shape: tuple[int, int, int, int], kind: torch.dtype, order: torch.memory_format
) -> None:
    layer, inputs, gradient = cuda_case(shape, kind, 0.0)
    check_answers(layer, inputs.contiguous(memory_format=order), gradient)
    # Gradients come in any order.
    check_answers(layer, inputs.contiguous(memory_format=order), channels_last(gradient))


@on_gpu
@pytest.mark.parametrize("kind", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_kernels_far_from_zero(shape: tuple[int, int, int, int], kind: torch.dtype) -> None:
    layer, inputs, gradient = cuda_case(shape, kind, 100.0)
    # In float32 a mean of 100 is itself rounded by 4e-6 deviations.
    check_answers(layer, channels_last(inputs), gradient, slack=4)


@on_gpu
def test_kernels_keep_what_is_not_finite() -> None:
    layer, inputs, _ = cuda_case((8, 4, 5, 5), torch.bfloat16, 0.0)
    inputs[0, 0, 2, 2] = torch.inf
    found = layer(channels_last(inputs))
    assert bool(found[0, :2].isnan().all())
    assert bool(found[0, 2:].isfinite().all())
    assert bool(found[1:].isfinite().all())


@on_gpu
def test_autocast_does_not_widen_it() -> None:
    layer, inputs, gradient = cuda_case((64, 32, 8, 8), torch.bfloat16, 0.0)
    plain = nn.GroupNorm(32, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert plain(inputs).dtype == torch.float32
        check_answers(layer, channels_last(inputs), gradient)
        with torch.no_grad():
            made = layer.eval()(channels_last(inputs))
    assert made.dtype == torch.bfloat16
    assert made.is_contiguous(memory_format=torch.channels_last)


@on_gpu
def test_captured_as_a_graph() -> None:
    layer, inputs, gradient = cuda_case((128, 32, 16, 16), torch.bfloat16, 0.0)
    inputs, place = channels_last(inputs), channels_last(torch.zeros_like(inputs))
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        answers(layer, place, gradient)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = answers(layer, place, gradient)
    place.copy_(inputs)
    graph.replay()
    direct = answers(layer, inputs, gradient)
    assert all(torch.equal(*pair) for pair in zip(captured, direct, strict=True))


def squares_of_rows(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = model(inputs).float()
    return (outputs + 0.5).square().sum(1)


@on_gpu
@pytest.mark.parametrize("views", [1, 3])
def test_private_training_on_a_gpu(views: int) -> None:
    generator = seeded(5)
    model = normed()
    inputs = torch.randn(4 * views, 8, 5, 5, generator=generator)
    names = {name: part.shape for name, part in model.named_parameters()}
    sums, norms = brute_force(model, inputs, 4, (0.7,), losses=squares_of_rows)
    model.cuda()
    found = clipped(model, channels_last(inputs.cuda()), 4, (0.7,), losses=squares_of_rows)
    torch.testing.assert_close(found.norms.cpu(), norms, rtol=2e-4, atol=1e-6)
    for name, part in model.named_parameters():
        assert found.sums[part].shape == names[name]
        # Every factor has a margin of 2**-9, for TF32.
        torch.testing.assert_close(found.sums[part].cpu(), sums[name], rtol=4e-3, atol=2e-5)
