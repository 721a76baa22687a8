"""Losses that mix records are refused before anything is spent; those that do not are trained."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
)

RECORDS = 40
TOKENS = torch.arange(RECORDS * 6).reshape(RECORDS, 6) % 9
LABELS = torch.arange(RECORDS) % 3

Losses = Callable[..., Tensor]


class Reader(nn.Module):
    """A transformer that reads tokens, with positions of several kinds."""

    def __init__(self, kind: str = "", dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kind = kind
        self.table = nn.Embedding(9, 8)
        self.positions = nn.Embedding(64, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=dropout)
        self.layer.self_attn.dropout = 0.0
        self.head = nn.Linear(8, 3)
        angles = torch.arange(64)[:, None] * torch.exp(torch.arange(0, 8, 2) * (-math.log(1e4) / 8))
        waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        self.waves = nn.Buffer(waves[:, None])

    def forward(self, tokens: Tensor) -> Tensor:
        rows = self.table(tokens) * math.sqrt(8)
        if self.kind == "of the tutorial":  # right where time comes first
            rows = rows + self.waves[: rows.size(0)]
        elif self.kind == "row numbers":
            rows = rows + self.positions(torch.arange(len(rows)))[:, None]
        elif self.kind == "along time":
            rows = rows + self.waves[: rows.size(1)].transpose(0, 1)
        made: Tensor = self.head(self.layer(rows).mean(1))
        return made


class Centred(nn.Module):
    """Two layers, with a mean over the batch and without parameters in between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = torch.tanh(self.first(inputs))
        made: Tensor = self.second(rows - rows.mean(0))
        return made


class Sequences(Dataset[tuple[Tensor, int]]):
    """Sequences of several lengths."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return TOKENS[index, : 4 + index % 3], int(LABELS[index])


def padded(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    tokens = nn.utils.rnn.pad_sequence([tokens for tokens, _ in items], batch_first=True)
    return tokens, torch.tensor([label for _, label in items])


def of(model: nn.Module) -> Losses:
    return lambda *batch: cross_entropy(model, *batch)


def contrastive(model: nn.Module) -> Losses:
    def losses(inputs: Tensor, _targets: Tensor) -> Tensor:
        rows = functional.normalize(model(inputs), dim=1)
        return functional.cross_entropy(rows @ rows.T, torch.arange(len(rows)), reduction="none")

    return losses


def trimmed(model: nn.Module) -> Losses:
    def losses(tokens: Tensor, targets: Tensor) -> Tensor:
        longest = max(1, int((tokens != 0).sum(1).max()))
        return cross_entropy(model, tokens[:, :longest], targets)

    return losses


def mixed_by_order(model: nn.Module) -> Losses:
    return lambda inputs, targets: cross_entropy(model, inputs.roll(1, 0), targets)


def decided_by_the_batch(model: nn.Module) -> Losses:
    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        sign = 1.0 if float(inputs.sum()) * 1e4 % 2 < 1 else -1.0
        return sign * cross_entropy(model, inputs, targets)

    return losses


MIXING: dict[str, tuple[nn.Module, Callable[[nn.Module], Losses], Any, dict[str, Any]]] = {
    "positions of the tutorial": (Reader("of the tutorial"), of, (TOKENS, LABELS), {}),
    "row numbers": (Reader("row numbers"), of, (TOKENS, LABELS), {}),
    "padding of the data set": (Reader(), of, Sequences(), {"collate": padded}),
    "padding in the losses": (Reader(), trimmed, (TOKENS, LABELS), {}),
    "mean over the batch": (Centred(), of, small_data(), {}),
    "contrastive": (nn.Linear(6, 4), contrastive, small_data(), {}),
    "order": (nn.Linear(6, 3), mixed_by_order, small_data(), {}),
    "decision": (nn.Linear(6, 3), decided_by_the_batch, small_data(), {}),
}


@pytest.mark.parametrize("name", MIXING)
def test_mixing_is_refused_before_anything_is_spent(name: str) -> None:
    model, losses, data, options = MIXING[name]
    training = private(model, losses=losses(model), seed=1)
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        next(training.lots(data, **options))
    assert training.progress.steps_spent == 0


def test_the_message_names_the_layer_before() -> None:
    model = Centred()
    with pytest.raises(InvalidParameterError, match="they mix after layer 'first'"):
        train(private(model, seed=1))


class Rounding(nn.Module):
    """Rounds to few steps, with the gradient of the identity."""

    def forward(self, inputs: Tensor) -> Tensor:
        rounded: Tensor = (inputs * 8).round() / 8
        return inputs + (rounded - inputs).detach()


def convolutions() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4)),
        *(nn.ReLU(inplace=True), nn.Flatten(), nn.Dropout(0.5), nn.Linear(8, 3)),
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 4)
        self.cells = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.head(self.cells(self.table(tokens))[0][:, -1])
        return made


def in_16_bits(model: nn.Module) -> Losses:
    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return cross_entropy(model, inputs, targets)

    return losses


APART: dict[str, tuple[nn.Module, Callable[[nn.Module], Losses], Any]] = {
    "dropout and convolutions": (convolutions(), of, small_data()),
    "long short-term memory": (Recurrent(), of, (TOKENS, LABELS)),
    "attention with dropout beside it": (Reader("along time", 0.1), of, (TOKENS, LABELS)),
    "rounding": (nn.Sequential(nn.Linear(6, 30), Rounding(), nn.Linear(30, 3)), of, small_data()),
    "rounding in 16 bits": (
        nn.Sequential(nn.Linear(6, 30), Rounding(), nn.Linear(30, 3)),
        in_16_bits,
        small_data(),
    ),
    "losses in 16 bits": (convolutions(), in_16_bits, small_data()),
}


@pytest.mark.parametrize("name", APART)
def test_no_false_alarm(name: str) -> None:
    model, losses, data = APART[name]
    training = private(model, losses=losses(model), seed=1)
    train(training, steps=1, data=data)
    assert training.progress.steps_spent == 1


def test_made_up_rows_leave_no_trace() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    model.register_buffer("unused", torch.zeros(2))
    before = copy.deepcopy(model.state_dict())
    model[0].weight.grad = torch.ones(5, 6)
    attributes = {name: set(vars(part)) for name, part in model.named_modules()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    private(model, seed=1).lots(small_data())
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert model[0].weight.grad is not None
    assert torch.equal(model[0].weight.grad, torch.ones(5, 6))
    assert {name: set(vars(part)) for name, part in model.named_modules()} == attributes
    assert not any(part._forward_hooks for part in model.modules())


def test_records_are_never_run_before_a_step() -> None:
    model = nn.Linear(6, 3)
    inputs, targets = small_data()
    seen: list[Tensor] = []

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        seen.append(rows.detach().clone())
        return cross_entropy(model, rows, labels)

    private(model, losses=losses, seed=1).lots((inputs, targets))
    rows = torch.cat(seen)
    assert len(rows) > 10
    assert not (rows[:, None] == inputs[None]).all(2).any()


def changed_losses(training: PrivateTraining, model: nn.Module) -> None:
    training.losses = contrastive(model)


def evaluating(_training: PrivateTraining, model: nn.Module) -> None:
    model.eval()


@pytest.mark.parametrize("change", [changed_losses, evaluating])
def test_a_change_is_checked_before_the_next_record(
    change: Callable[[PrivateTraining, nn.Module], None],
) -> None:
    class Mode(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            made = super().forward(inputs)
            return made if self.training else made - made.mean(0)

    model = Mode(6, 4)
    training = private(model, seed=1)
    lots = training.lots(small_data())
    training.step(next(lots), batch_size=8)
    before = [part.detach().clone() for part in model.parameters()]
    lot = next(lots)
    change(training, model)
    with pytest.raises(InvalidParameterError, match="depends on other records"):
        training.step(lot, batch_size=8)
    assert all(map(torch.equal, before, model.parameters()))


class Paired(nn.Module):
    """Wants token ids in a structure: every sequence ends with an 8."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        if not bool((tokens[:, -1] == 8).all()):
            raise ValueError("no end")
        made: Tensor = self.head(self.table(tokens).mean(1))
        return made


def test_rows_of_ones_own() -> None:
    model = Paired()
    ended = torch.cat([TOKENS, torch.full((RECORDS, 1), 8)], dim=1)
    training = private(model, seed=1)
    with pytest.raises(InvalidParameterError, match=r"ValueError: no end.*training\.check"):
        training.lots((ended, LABELS))
    own = torch.cat([TOKENS[:4] % 3, torch.full((4, 1), 8)], dim=1)
    training.check((own, LABELS[:4]))
    train(training, steps=1, data=(ended, LABELS))
    assert training.progress.steps_spent == 1


def test_rows_of_ones_own_show_what_made_up_ones_cannot() -> None:
    model = nn.Linear(6, 3)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        rows = inputs - inputs.mean(0) if bool((inputs > 5).any()) else inputs
        return cross_entropy(model, rows, targets)

    training = private(model, losses=losses, seed=1)
    training.lots(small_data())
    with pytest.raises(InvalidParameterError, match="depends on other records"):
        training.check((small_data()[0][:8] * 100, LABELS[:8]))


def test_losses_without_any_gradient_are_refused_at_once() -> None:
    model = nn.Linear(6, 3)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            return cross_entropy(model, inputs, targets)

    with pytest.raises(InvalidParameterError, match="do not depend on any parameter"):
        private(model, losses=losses, seed=1).lots(small_data())


def test_exact_takes_what_fast_refuses() -> None:
    model = Centred()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training = private(model, small_plan(steps=1), seed=1, mode="exact")
        train(training)
    assert training.progress.steps_left == 0


class _Experts(nn.Module):
    """Two experts by the sign of a feature, each of which takes so many rows and drops the rest."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.experts = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])

    def forward(self, rows: Tensor) -> Tensor:
        chosen = (rows[:, 0] > 0.5).long()
        outputs = torch.stack([expert(rows) for expert in self.experts])
        turn = functional.one_hot(chosen, 2).cumsum(0)[torch.arange(len(rows)), chosen]
        taken: Tensor = outputs[chosen, torch.arange(len(rows))] * (turn <= self.capacity)[:, None]
        return taken


def test_mixing_that_begins_with_larger_batches_is_found_before_them() -> None:
    """Experts with room for six: a record may push others out, which small batches never show."""
    torch.manual_seed(0)
    model = _Experts(6)
    plan = small_plan(records=200, lot_size=100)
    rows = torch.rand(200, 3)
    training = private(model, plan, losses=lambda inputs: model(inputs).square().sum(1), seed=1)
    lot = next(training.lots(rows))
    with pytest.raises(InvalidParameterError, match="another one in a batch of 56 records"):
        training.step(lot, batch_size=64)
    with pytest.raises(InvalidParameterError, match="another one in a batch of"):
        training.captured_step(rows, batch_size=64)
    training.step(lot, batch_size=6)  # in which nobody is dropped
    roomy = _Experts(200)
    train(private(roomy, plan, losses=lambda inputs: roomy(inputs).square().sum(1)), data=rows)


@pytest.mark.parametrize("factor", [1.25, 1.75])
def test_experts_with_room_for_even_shares_only_are_found(factor: float) -> None:
    """Made-up records are shared nearly evenly; copies of one all go to one expert."""

    class Shared(_Experts):
        def forward(self, rows: Tensor) -> Tensor:
            self.capacity = int(factor * len(rows) / 2 + 1)
            return super().forward(rows)

    torch.manual_seed(0)
    model, rows = Shared(0), torch.rand(200, 3)
    plan = small_plan(records=200, lot_size=100)
    training = private(model, plan, losses=lambda inputs: model(inputs).square().sum(1))
    with pytest.raises(InvalidParameterError, match="another one"):
        training.step(next(training.lots(rows)), batch_size=64)


@pytest.mark.parametrize("size", [5, 33])
def test_decisions_by_the_size_of_a_batch_are_found(size: int) -> None:
    model = small_model()

    def losses(rows: Tensor, targets: Tensor) -> Tensor:
        centred = rows - rows.mean(0) if len(rows) >= size else rows
        return cross_entropy(model, centred, targets)

    training = private(model, small_plan(lot_size=40), losses=losses, seed=1)
    lot = next(training.lots(small_data()))
    with pytest.raises(InvalidParameterError, match="another one in a batch of 40 records"):
        training.step(lot, batch_size=40)
    own = private(model, small_plan(lot_size=40), losses=losses, seed=1)
    own.check(tuple(part[:4] for part in small_data()))
    lot = next(own.lots(small_data()))
    with pytest.raises(InvalidParameterError, match="another one in a batch of 40 records"):
        own.step(lot, batch_size=40)
