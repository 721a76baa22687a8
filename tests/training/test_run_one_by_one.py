"""Models with a parameter of their own that vmap cannot take: examples are run in a loop."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers import rerun
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    check_every_gradient,
    clipped,
)

pytestmark = pytest.mark.filterwarnings("ignore:.* has no shortcut")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
Body = Callable[["Around", Tensor], Tensor]


class Around(nn.Module):
    """A parameter of the model's own, around layers and what a test wants to be done."""

    def __init__(self, body: Body, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5, -0.5, 0.7]))
        self.inner = nn.Linear(3, 3) if inner is None else inner
        self.body = body
        self.calls = 0
        self.seen: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        return self.scale.abs() * self.body(self, self.scale * inputs)


class Doubled(torch.autograd.Function):
    """Of the older kind, which torch.func does not take."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(inputs)
        return inputs.square()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (inputs,) = ctx.saved_tensors
        return 2.0 * inputs * gradients[0]


def remembers(model: Around, rows: Tensor) -> Tensor:
    steps = torch.stack([rows, rows.square(), torch.sin(rows)], 1)
    made: Tensor = model.inner(steps)[0][:, -1]
    return made


def decides(model: Around, rows: Tensor) -> Tensor:
    made: Tensor = model.inner(rows) if rows.square().sum() > 0 else rows
    return made


def reads(model: Around, rows: Tensor) -> Tensor:
    made: Tensor = model.inner(rows) * (2.0 if rows.square().sum().item() > 0 else 1.0)
    return made


def writes(model: Around, rows: Tensor) -> Tensor:
    made = torch.zeros(len(rows), 3, device=rows.device, dtype=rows.dtype)
    made[:, 1] = model.inner(rows)[:, 0]
    made[:, 2:] += rows[:, :1]
    return made


def has_an_older_function(model: Around, rows: Tensor) -> Tensor:
    made: Tensor = model.inner(Doubled.apply(rows))  # type: ignore[no-untyped-call]
    return made


CASES: list[tuple[Body, Callable[[], nn.Module | None]]] = [
    (remembers, lambda: nn.GRU(3, 3, batch_first=True)),
    (remembers, lambda: nn.LSTM(3, 3, 2, batch_first=True)),
    (decides, lambda: None),
    (reads, lambda: None),
    (writes, lambda: None),
    (has_an_older_function, lambda: None),
]
NAMES = ["GRU", "LSTM", "decides", "reads", "writes", "function"]


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that tells of every loop."""
    seen: list[int] = []
    plain = rerun._in_a_loop

    def loop(*arguments: Any) -> Any:
        seen.append(1)
        return plain(*arguments)

    monkeypatch.setattr(rerun, "_in_a_loop", loop)
    return seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("examples", [6, 2])
@pytest.mark.parametrize(("body", "inner"), CASES, ids=NAMES)
def test_models(
    body: Body,
    inner: Callable[[], nn.Module | None],
    examples: int,
    device: str,
    loops: list[int],
) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 3), Around(body, inner()), nn.Tanh()).to(device)
    inputs = torch.randn(6, 3, device=device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_every_gradient(model, inputs, examples)
        check_against_brute_force(model, inputs, examples, bounds=(0.7,))
    assert loops or device != "cpu"  # vmap may know other kernels


def test_what_vmap_does_not_take_is_not_tried_again(
    loops: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    plain = rerun._at_once

    def try_it(*arguments: Any) -> Any:
        tries.append(1)
        return plain(*arguments)

    monkeypatch.setattr(rerun, "_at_once", try_it)
    model = Around(reads)
    for _ in range(3):
        check_against_brute_force(model, torch.randn(6, 3), 3, bounds=(0.7,))
    assert len(tries) == 1
    assert len(loops) == 3


def test_what_vmap_takes_is_not_looped(loops: list[int]) -> None:
    model = Around(lambda model, rows: model.inner(rows))
    check_against_brute_force(model, torch.randn(6, 3), 3, bounds=(0.7,))
    assert not loops


def test_a_frozen_parameter_and_several_calls() -> None:
    torch.manual_seed(2)
    around = Around(reads)
    around.inner.requires_grad_(False)
    check_against_brute_force(nn.Sequential(around, around), torch.randn(6, 3), 3, bounds=(0.7,))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("body", "inner"), CASES[:4], ids=NAMES[:4])
def test_autocast(body: Body, inner: Callable[[], nn.Module | None], device: str) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 3), Around(body, inner())).to(device)

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            outputs = model(inputs)
        return outputs.float().square().sum(1)

    inputs = torch.randn(6, 3, device=device)
    found = clipped(model, inputs, 3, losses=losses)
    _, norms = brute_force(model, inputs, 3, losses=losses)
    torch.testing.assert_close(found.norms, norms, rtol=4e-2, atol=0.0)


def test_nothing_goes_from_one_example_to_the_next() -> None:
    def counts(model: Around, rows: Tensor) -> Tensor:
        model.calls += 1
        return reads(model, rows) * model.calls

    torch.manual_seed(4)
    model = Around(counts)
    norms = clipped(model, torch.randn(6, 3), 6).norms
    assert norms.isnan().all()  # no step can be taken with them; see test_same_run.py
    assert model.calls == 1


class Clears(nn.Module):
    """Lets a layer keep something during its call alone."""

    def __init__(self, inner: Around, seen: list[Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.seen = seen

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.clear()
        made: Tensor = self.inner(inputs)
        self.seen.clear()
        return made


def test_lists_are_as_they_were_for_every_example() -> None:
    def keeps(model: Around, rows: Tensor) -> Tensor:
        model.seen.append(reads(model, rows))
        return torch.stack(model.seen).sum(0)

    torch.manual_seed(4)
    around = Around(keeps)
    model = Clears(around, around.seen)
    check_every_gradient(model, torch.randn(6, 3), 3)
    assert not around.seen


def drops(model: Around, rows: Tensor) -> Tensor:
    return reads(model, nn.functional.dropout(rows, 0.5, training=model.training))


def draws(model: Around, rows: Tensor) -> Tensor:
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
    return reads(model, rows) + noise.to(rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("body", [drops, draws])
def test_random_numbers_are_refused(body: Body, device: str) -> None:
    model = Around(body).to(device)
    inputs = torch.randn(6, 3, device=device)

    def states() -> list[Tensor]:
        on_device = [torch.cuda.get_rng_state(device)] if device == "cuda" else []
        return [torch.get_rng_state(), *on_device]

    before: list[Tensor] = []

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        made: Tensor = model(inputs).sum(1)
        before.extend(states())
        return made

    with pytest.raises(InvalidParameterError, match=r"draws random numbers.*small module"):
        clipped(model, inputs, 6, losses=losses)
    assert all(torch.equal(*pair) for pair in zip(before, states(), strict=True))
    if body is drops:
        check_against_brute_force(model.eval(), inputs, 3, bounds=(0.7,))


def test_random_numbers_of_one_example_only() -> None:
    def rarely(model: Around, rows: Tensor) -> Tensor:
        made = reads(model, rows)
        return made + torch.rand(()) if len(rows) == 1 and rows[0, 0].item() > 0 else made

    with pytest.raises(InvalidParameterError, match="draws random numbers"):
        clipped(Around(rarely), torch.tensor([[1.0] * 3] + [[-1.0] * 3] * 5), 6)


@pytest.mark.parametrize("kind", [ValueError, KeyError, RuntimeError])
def test_errors_of_the_layer_keep_their_message(kind: type[Exception]) -> None:
    def fails(model: Around, rows: Tensor) -> Tensor:
        if len(rows) == 1:
            raise kind("too few")
        return reads(model, rows)

    expected = InvalidParameterError if kind is RuntimeError else kind
    with pytest.raises(expected, match="too few"):
        clipped(Around(fails), torch.randn(6, 3), 6)


def test_numbers_that_are_not_finite() -> None:
    def infinite(model: Around, rows: Tensor) -> Tensor:
        return (-1.0 - reads(model, rows).square()).log()

    norms = clipped(Around(infinite), -torch.ones(4, 3), 4).norms
    assert not norms.isfinite().any()
