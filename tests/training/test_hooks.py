"""Hooks and backward functions of the user's own: what they do to gradients before and after."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from training.brute_force import check_against_brute_force, clipped


class Writes(torch.autograd.Function):
    """The identity, whose backward function writes to the gradient that it is given."""

    @staticmethod
    def forward(_ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.view_as(inputs)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mul_(-100.0)


class Scaled(nn.Module):
    """A layer of a kind that is not known."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.scale


# Of every kind that holds other things between the norm and the sum.
LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.Linear(5, 3), (5,)),
    (lambda: nn.Linear(12, 12), (4, 12)),
    (lambda: nn.Linear(2, 2), (30, 2)),
    (lambda: nn.Conv2d(2, 3, 3), (2, 9, 9)),
    (lambda: nn.Conv2d(16, 32, 3), (16, 4, 4)),
    (lambda: nn.Conv1d(2, 3, 3), (2, 9)),
    (lambda: nn.LSTM(5, 4, batch_first=True), (3, 5)),
    (lambda: nn.GRU(5, 4, batch_first=True), (3, 5)),
    (lambda: nn.Embedding(7, 4), (3,)),
    (lambda: nn.LayerNorm(5), (5,)),
    (lambda: nn.GroupNorm(2, 4), (4, 3)),
    (lambda: Scaled(5), (5,)),
]


def same_or_refused(made: Callable[..., Tensor], layer: nn.Module, inputs: Tensor) -> bool:
    """Return whether writing after a norm was taken is refused, or comes to nothing."""

    def sums(*, writes: bool) -> Mapping[nn.Parameter, Tensor]:
        return clipped(
            layer, inputs, len(inputs), losses=lambda _, rows: made(rows, writes=writes)
        ).sums

    expected = sums(writes=False)
    try:
        found = sums(writes=True)
    except InvalidParameterError as error:
        return "changed in place" in str(error)
    return all(torch.allclose(total, expected[part], rtol=1e-5) for part, total in found.items())


def first_output(layer: nn.Module, inputs: Tensor) -> Tensor:
    made = layer(inputs)
    output: Tensor = made[0] if isinstance(made, tuple) else made
    return output


@pytest.mark.parametrize(("make", "shape"), LAYERS)
def test_a_gradient_that_is_written_to_after_its_norm(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer, inputs = make(), torch.randn(6, *shape)
    inputs = inputs.argsort(1) if isinstance(layer, nn.Embedding) else inputs
    like = first_output(layer, inputs).detach()

    def losses(rows: Tensor, *, writes: bool) -> Tensor:
        # An addition hands the same tensor back to both, and to what was made last first.
        beside = torch.zeros_like(like).requires_grad_()
        beside = Writes.apply(beside) if writes else beside * 1.0  # type: ignore[no-untyped-call]
        return (first_output(layer, rows) + beside).square().flatten(1).sum(1)

    assert same_or_refused(losses, layer, inputs)


@pytest.mark.parametrize(("make", "shape"), [one for one in LAYERS if one[1] != (3,)])
def test_an_input_that_is_written_to_after_its_norm(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    layer, inputs = make(), torch.randn(6, *shape)

    def losses(rows: Tensor, *, writes: bool) -> Tensor:
        rows = rows.clone().requires_grad_() * 1.0

        def write(_gradient: Tensor) -> None:
            rows.detach().mul_(100.0)

        if writes:
            rows.register_hook(write)
        return first_output(layer, rows).square().flatten(1).sum(1)

    assert same_or_refused(losses, layer, inputs)


def test_a_full_backward_hook_that_writes() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3))

    def write(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        outputs[0].mul_(50.0)

    model[1].register_full_backward_hook(write)
    with pytest.raises(InvalidParameterError, match=r"layer '1' was changed in place during"):
        clipped(model, torch.randn(6, 5), 6)


class Hooked(nn.Module):
    """Registers a hook on what a layer returns."""

    def __init__(self, layer: nn.Module, hook: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.head, self.hook = layer, nn.Linear(4, 3), hook

    def forward(self, inputs: Tensor) -> Tensor:
        made = first_output(self.layer, inputs)
        made.register_hook(self.hook)
        answer: Tensor = self.head(torch.tanh(made))
        return answer


@pytest.mark.parametrize("hook", [lambda g: 0.1 * g, lambda g: g.mul_(50.0)], ids=["new", "same"])
@pytest.mark.parametrize("first", [nn.Identity, lambda: nn.Linear(4, 4)])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Linear(4, 4), (4,)),
        (lambda: nn.GRU(4, 4, batch_first=True), (3, 4)),
        (lambda: Scaled(4), (4,)),
    ],
)
def test_hooks_on_outputs_are_followed(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    first: Callable[[], nn.Module],
    hook: Callable[[Tensor], Tensor],
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(first(), Hooked(make(), hook))
    check_against_brute_force(model, torch.randn(6, *shape), bounds=(0.7,))


def test_forward_hooks_that_register_others_are_followed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

    def register(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        output.register_hook(lambda gradient: 50.0 * gradient)

    model[0].register_forward_hook(register)
    model[2].register_forward_hook(register)
    check_against_brute_force(model, torch.randn(6, 5), bounds=(0.7,))


@pytest.mark.parametrize("changes", [True, False])
def test_a_layer_that_returns_a_leaf(*, changes: bool) -> None:
    class Passes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, inputs: Tensor) -> Tensor:
            return inputs * self.scale if changes else inputs

    torch.manual_seed(0)
    model = nn.Sequential(Passes(), nn.Linear(4, 3))

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        return model(rows.clone().requires_grad_()).square().sum(1)

    check_against_brute_force(model, torch.randn(6, 4), bounds=(0.7,), losses=losses)
