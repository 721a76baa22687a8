"""Instance normalisation of one row: torch's own backward pass is wrong for it in one layout."""

import copy
from typing import Literal

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.training.layers.instance_gradient import right_instance_gradients
from training.small_training import RECORDS, private, train, weights


def channels_last(part: Tensor) -> Tensor:
    layout = torch.channels_last if part.ndim == 4 else torch.channels_last_3d
    return part.contiguous(memory_format=layout)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("kind", [nn.InstanceNorm2d, nn.InstanceNorm3d])
def test_gradients_do_not_depend_on_the_layout(
    kind: type[nn.Module], rows: int, *, affine: bool
) -> None:
    torch.manual_seed(1)
    layer = kind(4, affine=affine)
    shape = (rows, 4, 5, 6, 3)[: 4 if kind is nn.InstanceNorm2d else 5]
    inputs, slopes = torch.randn(shape, requires_grad=True), torch.randn(shape)
    with right_instance_gradients(layer):
        for outer in (slice(None), 0):  # also without an axis of rows
            output = layer(inputs[outer])
            plain, last = (
                torch.autograd.grad(output, inputs, part[outer], retain_graph=True)[0]
                for part in (slopes, channels_last(slopes))
            )
            torch.testing.assert_close(last, plain)


def images() -> Tensor:
    return torch.randn(RECORDS, 2, 6, 6, generator=torch.Generator().manual_seed(2))


def trained(mode: Literal["fast", "exact"], size: int, how: str, after: nn.Module) -> Tensor:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4), after, nn.Conv2d(4, 1, 2))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def losses(rows: Tensor) -> Tensor:
        return model(channels_last(rows)).flatten(1).square().sum(1)

    training = private(model, losses=losses, seed=1, mode=mode)
    if how == "captured":
        step = training.captured_step(images(), batch_size=size)
        while training.progress.steps_left:
            step()
    else:
        train(training, size=size, data=images())
    return weights(model)


@pytest.mark.parametrize("after", [nn.Tanh(), nn.ReLU(inplace=True)], ids=str)
def test_batches_of_one_record(after: nn.Module) -> None:
    expected = trained("fast", 8, "loop", after)
    for mode, how in (("fast", "loop"), ("fast", "captured"), ("exact", "loop")):
        found = trained(mode, 1, how, after)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_nothing_stays() -> None:
    layer = nn.InstanceNorm2d(4)
    before = copy.copy(vars(layer))
    with right_instance_gradients(layer):
        assert vars(layer) == before
    output = layer(torch.randn(1, 4, 5, 6, requires_grad=True))
    assert output.grad_fn is not None
    before_it = output.grad_fn.next_functions[0][0]  # of the view that torch itself returns
    assert "View" not in type(before_it).__name__
