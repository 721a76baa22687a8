"""Attacks on the check, and on what it takes for the same: records that mix later, or by chance."""

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining, RepeatedTrainingWarning, TrainingPlan

RECORDS = 12
ROWS = torch.randn(RECORDS, 8, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(RECORDS) % 3
Losses = Callable[..., Tensor]


def training_of(model: nn.Module, losses: Losses | None = None, **options: Any) -> PrivateTraining:
    plan = TrainingPlan(
        records=RECORDS, lot_size=RECORDS, steps=3, clip_norm=1.0, noise_multiplier=1.0, delta=1e-3
    )

    def entropy(rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(rows), labels, reduction="none")

    trained = [part for part in model.parameters() if part.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    return PrivateTraining(model, losses or entropy, optimizer, plan, **{"seed": 1} | options)


def mlp() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


class Gated(nn.Module):
    """A branch that mixes records behind a gate, which may begin at zero."""

    def __init__(self, gate: float, *, detached: bool) -> None:
        super().__init__()
        self.body, self.branch, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.gate = nn.Parameter(torch.tensor(gate))
        self.detached = detached

    def forward(self, rows: Tensor) -> Tensor:
        branch = self.branch(rows)
        mean = branch.mean(0)
        branch = branch - (mean.detach() if self.detached else mean)
        made: Tensor = self.head(self.body(rows) + self.gate * branch)
        return made


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("gate", [0.0, 1e-6])
def test_what_mixes_behind_a_closed_gate_is_found(gate: float, *, detached: bool) -> None:
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        training_of(Gated(gate, detached=detached)).lots((ROWS, LABELS))


def test_weights_that_begin_at_zero_stay_zero_in_a_check() -> None:
    model = mlp()
    nn.init.zeros_(model.get_parameter("2.weight"))
    before = {name: part.clone() for name, part in model.state_dict().items()}
    training_of(model).lots((ROWS, LABELS))
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())


@pytest.mark.parametrize(
    "coin",
    [random.random, np.random.rand, lambda: float(torch.rand(()))],
    ids=["python", "numpy", "torch"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_mixing_by_a_coin_is_found(coin: Callable[[], float], *, turned: bool) -> None:
    model = mlp()

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        if (coin() < 0.5) is not turned:
            rows = 0.5 * (rows + rows.flip(0))
        return functional.cross_entropy(model(rows), labels, reduction="none")

    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        training_of(model, losses).lots((ROWS, LABELS))


@pytest.mark.parametrize(
    "augment",
    [
        lambda rows: rows * torch.randint(4, (len(rows), 1)),
        lambda rows: rows * torch.randint(1, 4, (len(rows), 1)),
        lambda rows: rows * torch.empty(len(rows), 1).exponential_(),
        functional.gumbel_softmax,
        lambda rows: rows + torch.normal(torch.zeros_like(rows), 1.0),
        lambda rows: rows * torch.empty(len(rows), 1, dtype=torch.bool).bernoulli_(0.5),
        lambda rows: rows[:, torch.randperm(8)],  # the same columns for all
    ],
)
def test_random_numbers_of_each_record_are_no_mixing(augment: Callable[[Tensor], Tensor]) -> None:
    model = mlp()

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(augment(rows)), labels, reduction="none")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lots = training_of(model, losses).lots((ROWS, LABELS))
    assert caught == []  # taken layer by layer
    assert next(lots).step == 0


class Placed(nn.Module):
    """Positions that all rows share, and a first layer without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.positions = nn.Embedding(9, 8), nn.Embedding(8, 8)
        self.table.requires_grad_(False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1])
        rows = torch.tanh(self.table(tokens) + self.positions(positions))
        rows = rows.masked_fill((positions >= lengths[:, None])[..., None], 0.0)
        made: Tensor = self.head(rows.sum(1))
        return made


def padded(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    rows = [tokens for tokens, _ in items]
    lengths = torch.tensor([len(tokens) for tokens in rows])
    return pad_sequence(rows, batch_first=True), lengths, torch.tensor([one for _, one in items])


@pytest.mark.filterwarnings("ignore:the model is run for all records at once")
def test_positions_that_records_share_are_no_mixing() -> None:
    items = [(torch.arange(8 - number % 5) % 9, number % 3) for number in range(RECORDS)]
    model = Placed()

    def losses(tokens: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(tokens, lengths), labels, reduction="none")

    training = training_of(model, losses)
    for lot in training.lots(items, collate=padded):
        training.step(lot, batch_size=5)
    assert training.progress.steps_left == 0


class Experts(nn.Module):
    """Each row goes to one of two layers, and those of the made-up records all to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        second = rows.sum(-1) < -30.0
        made = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            mine = second == bool(number)
            if mine.any():
                made[mine] = expert(rows[mine])
        head: Tensor = self.head(torch.tanh(made))
        return head if head.ndim == 2 else head.mean(1)


@pytest.mark.parametrize("ways", [4, 8])
def test_rows_that_only_some_experts_get(ways: int) -> None:
    """Of four records, ``ways`` of their eight rows go to the first expert: two each at first."""
    torch.manual_seed(3)
    model = Experts()
    rows = torch.rand(RECORDS, 2, 8)
    rows.view(-1, 8)[ways:] -= 10.0
    sums: list[dict[str, Tensor]] = []
    for mode in ("fast", "exact"):
        training = training_of(model, mode=mode)
        end = training._steps._end
        names = training._steps._trainable.names

        def keep(found: Any, _number: int, names: Any = names) -> None:
            sums.append({names[part]: total.clone() for part, total in found.items()})

        end.take = keep  # type: ignore[method-assign, assignment]
        training.step(next(training.lots((rows, LABELS))), batch_size=RECORDS)
    fast, exact = sums
    for name, total in exact.items():
        torch.testing.assert_close(fast[name].double(), total, rtol=1e-4, atol=1e-5)


def test_a_sparse_table_is_trained() -> None:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(12, 3))
    training = training_of(model)
    tokens = torch.arange(RECORDS * 3).reshape(RECORDS, 3) % 9
    for lot in training.lots((tokens, LABELS)):
        training.step(lot, batch_size=RECORDS)
    assert training.progress.steps_left == 0


@pytest.mark.parametrize("captured", [False, True])
def test_an_autocast_around_the_loop_keeps_no_weights(*, captured: bool) -> None:
    plain, ambient = mlp(), mlp()

    def losses_by(model: nn.Module) -> Losses:
        def losses(rows: Tensor, labels: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return functional.cross_entropy(model(rows), labels, reduction="none")

        return losses

    def train(model: nn.Module) -> None:
        training = training_of(model, losses_by(model))
        if captured:
            step = training.captured_step((ROWS, LABELS), batch_size=RECORDS)
            while training.progress.steps_left:
                step()
            return
        for lot in training.lots((ROWS, LABELS)):
            training.step(lot, batch_size=RECORDS)

    train(plain)
    with torch.autocast("cpu", torch.bfloat16):
        train(ambient)
    for one, other in zip(plain.parameters(), ambient.parameters(), strict=True):
        assert torch.equal(one, other)


class Opaque:
    """What a data set may hold, and nobody can make up."""

    def __init__(self, row: Tensor) -> None:
        self.row = row


def test_a_record_is_never_taken_for_a_made_up_one() -> None:
    items = [(Opaque(row), int(label)) for row, label in zip(ROWS, LABELS, strict=True)]

    def collated(some: list[tuple[Opaque, int]]) -> tuple[Tensor, Tensor]:
        rows = torch.stack([one.row for one, _ in some])
        return rows, torch.tensor([label for _, label in some])

    training = training_of(mlp())
    with pytest.raises(InvalidParameterError, match=r"holds a Opaque.*training\.check\(rows\)"):
        training.lots(items, collate=collated)
    training.check([(Opaque(torch.rand(8)), 1) for _ in range(8)], collate=collated)
    next(iter(training.lots(items, collate=collated)))


class Noisy(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """A data set with random transforms."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(8) + random.random() + np.random.rand(), index % 3  # noqa: NPY002, S311


def test_a_check_leaves_generators_where_they_were() -> None:
    def states() -> tuple[Any, ...]:
        numbers: Any = np.random.get_state()  # noqa: NPY002
        return random.getstate(), numbers[1].tolist(), numbers[2], torch.get_rng_state().tolist()

    training, before = training_of(mlp()), states()
    training.lots(Noisy())
    assert states() == before


def test_losses_that_need_several_records_are_refused_in_words() -> None:
    model, teacher = mlp(), nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(teacher(rows)), labels, reduction="none")

    with pytest.raises(InvalidParameterError, match="cannot be computed for made-up records"):
        training_of(model, losses).lots((ROWS, LABELS))


def mixing_hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return output - output.mean(0)


def test_a_hook_that_is_added_is_checked_before_the_next_record() -> None:
    model = mlp()
    training = training_of(model)
    lots = training.lots((ROWS, LABELS))
    lot = next(lots)
    model[0].register_forward_hook(mixing_hook)
    with pytest.raises(InvalidParameterError, match="they mix"):
        training.step(lot, batch_size=RECORDS)


def test_a_captured_step_has_the_hooks_that_it_was_captured_with() -> None:
    model = mlp()
    training = training_of(model)
    step = training.captured_step((ROWS, LABELS), batch_size=RECORDS)
    hook = model[0].register_forward_hook(mixing_hook)
    with pytest.raises(InvalidParameterError, match="given other hooks"):
        step()
    hook.remove()
    step()


@pytest.mark.parametrize("subset", [False, True])
def test_a_part_of_data_that_is_taken_once_more_warns(*, subset: bool) -> None:
    rows, labels = ROWS.repeat(2, 1), LABELS.repeat(2)

    def part() -> Any:
        if not subset:
            return rows[:RECORDS], labels[:RECORDS]
        whole = torch.utils.data.TensorDataset(rows, labels)
        return torch.utils.data.Subset(whole, range(RECORDS))

    next(iter(training_of(mlp(), seed=None).lots(part())))
    with pytest.warns(RepeatedTrainingWarning, match="training number 2"):
        training_of(mlp(), seed=None).lots(part())
