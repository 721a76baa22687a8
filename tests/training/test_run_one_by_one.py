"""Models with a parameter of their own that vmap cannot take: examples are run in a loop."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers import per_record
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    check_every_gradient,
    clipped,
)
from training.chosen_way import BY_LAYER, check_training
from training.small_training import private, small_data

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
    plain = per_record._in_a_loop

    def loop(*arguments: Any) -> Any:
        seen.append(1)
        return plain(*arguments)

    monkeypatch.setattr(per_record, "_in_a_loop", loop)
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
    plain = per_record._at_once

    def try_it(*arguments: Any) -> Any:
        tries.append(1)
        return plain(*arguments)

    monkeypatch.setattr(per_record, "_at_once", try_it)
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


def counts(model: Around, rows: Tensor) -> Tensor:
    model.calls += 1
    return reads(model, rows) * model.calls


def test_a_layer_that_counts_its_calls_is_refused() -> None:
    # Its losses are others with every batch.
    with pytest.raises(InvalidParameterError, match="the loss of a record is another one"):
        check_training(Around(counts), torch.randn(6, 3))


class Clears(nn.Module):
    """Lets a layer keep something during its call alone."""

    def __init__(self, inner: Around) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        self.inner.seen.clear()
        made: Tensor = self.inner(inputs)
        self.inner.seen.clear()
        return made


def test_what_a_layer_keeps_during_a_call() -> None:
    def keeps(model: Around, rows: Tensor) -> Tensor:
        # A product of matrices: the weight cannot be expanded, and the layer is run again.
        model.seen.append(reads(model, rows @ torch.diag(model.scale)))
        return torch.stack(model.seen).sum(0)

    torch.manual_seed(4)
    # Run again, the layer alone would find what it has kept of other records.
    assert check_training(Clears(Around(keeps)), torch.randn(6, 3), 3) != BY_LAYER


def drops(model: Around, rows: Tensor) -> Tensor:
    return reads(model, nn.functional.dropout(rows, 0.5, training=model.training))


def draws(model: Around, rows: Tensor) -> Tensor:
    noise = torch.randn(rows.shape[1:], generator=torch.Generator().manual_seed(1))
    return reads(model, rows) + noise.to(rows)


def test_random_numbers_are_drawn_for_each_record() -> None:
    # Run again, the layer would draw other numbers than in its forward pass.
    model = nn.Sequential(nn.Linear(6, 3), Around(drops))
    with pytest.warns(UserWarning, match="the model is run for "):
        private(model, seed=1).check(small_data())
    assert check_training(model[1].eval(), torch.randn(6, 3), 3) == BY_LAYER


def test_numbers_of_a_generator_of_its_own() -> None:
    # The same for every record and run.
    check_training(Around(draws), torch.randn(6, 3), 3)


def test_errors_of_the_layer_keep_their_message() -> None:
    def fails(model: Around, rows: Tensor) -> Tensor:
        if len(rows) == 1:
            raise KeyError("too few")
        return reads(model, rows)

    with pytest.raises(KeyError, match="too few"):
        clipped(Around(fails), torch.randn(6, 3), 6)


def test_numbers_that_are_not_finite() -> None:
    def infinite(model: Around, rows: Tensor) -> Tensor:
        return (-1.0 - reads(model, rows).square()).log()

    norms = clipped(Around(infinite), -torch.ones(4, 3), 4).norms
    assert not norms.isfinite().any()
