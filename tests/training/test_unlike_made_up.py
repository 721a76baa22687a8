"""Batches unlike the made-up ones: sorted rows, shared tensors, another collate function."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from matrixdp.training.checks.made_up import KINDS, Kind, imitation
from matrixdp.training.checks.model import ModelCheck
from training.test_attacks import LABELS, RECORDS, ROWS, mlp, padded, training_of


class SortedByLength(nn.Module):
    """Runs its rows in the order of their lengths, and puts them back in theirs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table, self.head = nn.Embedding(9, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True, stable=True)
        ends = torch.arange(tokens.shape[1]) < lengths[order][:, None]
        rows = (torch.tanh(self.table(tokens[order])) * ends[..., None]).sum(1)
        made: Tensor = self.head(rows[order.argsort()])
        return made


def to_one_length(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    tokens, lengths, labels = padded([*items, (torch.zeros(8, dtype=torch.int64), 0)])
    return tokens[:-1], lengths[:-1], labels[:-1]


def sum_of_first_step(training: PrivateTraining, data: Any, **options: Any) -> dict[str, Tensor]:
    """Return what the first step adds noise to, by the names of parameters."""
    found: dict[str, Tensor] = {}
    names = training._steps._trainable.names

    def keep(sums: Any, _number: int) -> None:
        found.update({names[part]: total.double() for part, total in sums.items()})

    training._steps._end.take = keep  # type: ignore[method-assign, assignment]
    training.step(next(training.lots(data, **options)), batch_size=RECORDS)
    return found


@pytest.mark.filterwarnings("ignore:the model is run for all records at once")
def test_rows_that_are_sorted_within_the_model() -> None:
    # The first record is the longest one, as the first made-up one is.
    items = [(torch.arange(8 - number * 5 % 8) % 9, number % 3) for number in range(RECORDS)]
    sums = []
    for mode in ("fast", "exact"):
        model = SortedByLength()

        def losses(
            tokens: Tensor, lengths: Tensor, labels: Tensor, model: nn.Module = model
        ) -> Tensor:
            made = functional.cross_entropy(model(tokens, lengths), labels, reduction="none")
            return made * torch.where(lengths > 4, 100.0, 0.1)

        training = training_of(model, losses, mode=mode)
        sums.append(sum_of_first_step(training, items, collate=to_one_length))
    fast, exact = sums
    for name, total in exact.items():
        torch.testing.assert_close(fast[name], total, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the model is run for all records at once")
def test_a_small_share_of_the_gradient_that_passes_the_layers_by() -> None:
    sums = []
    for mode in ("fast", "exact"):
        model = mlp()

        def losses(rows: Tensor, labels: Tensor, model: nn.Module = model) -> Tensor:
            squares = torch.stack([part.square().sum() for part in model.parameters()]).sum()
            entropy = functional.cross_entropy(model(rows), labels, reduction="none")
            return entropy + 2e-3 * squares

        sums.append(sum_of_first_step(training_of(model, losses, mode=mode), (ROWS, LABELS)))
    fast, exact = sums
    for name, total in exact.items():
        torch.testing.assert_close(fast[name], total, rtol=1e-3, atol=1e-3)


class Logarithms(nn.Module):
    """Wants numbers above 1, which made-up ones are not, and mixes records."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        rows = self.body(torch.log(rows - 1.0))
        made: Tensor = self.head(rows - rows.mean(0))
        return made


def test_losses_that_are_not_finite_for_any_made_up_record() -> None:
    training, rows = training_of(Logarithms()), ROWS.abs() + 1.5
    with pytest.raises(InvalidParameterError, match=r"not finite .* training\.check\(rows\)"):
        training.lots((rows, LABELS))
    with pytest.raises(InvalidParameterError, match="they mix after layer 'body'"):
        training.check((rows, LABELS))


def test_gradients_that_are_not_finite_for_any_made_up_record() -> None:
    model = mlp()

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        roots = torch.sqrt(model(rows).square().sum(1) * (rows[:, 0] > 1.0))
        return functional.cross_entropy(model(rows), labels, reduction="none") + roots

    with pytest.raises(InvalidParameterError, match="losses or their gradients are not finite"):
        training_of(model, losses).lots((ROWS, LABELS))


def to_the_longest(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    tokens, _, labels = padded(items)
    return tokens, labels


def test_another_collate_function_is_checked() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.AdaptiveAvgPool2d((1, 8)), nn.Flatten())
    items = [(torch.arange(8 - number * 5 % 8) % 9, number % 3) for number in range(RECORDS)]
    training = training_of(model)
    training.lots((torch.zeros(RECORDS, 8, dtype=torch.int64), LABELS))
    training.check((torch.zeros(4, 8, dtype=torch.int64), LABELS[:4]))
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        training.lots(items, collate=to_the_longest)


class Places(nn.Module):
    """Takes positions with every batch, which all of its rows share."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table, self.positions, self.head = (
            nn.Embedding(9, 8),
            nn.Embedding(64, 8),
            nn.Linear(8, 3),
        )

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        rows = torch.tanh(self.table(tokens) + self.positions(positions))
        made: Tensor = self.head(rows.mean(-2))
        return made


def with_places(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    tokens = torch.stack([row for row, _ in items])
    return tokens, torch.arange(RECORDS), torch.tensor([label for _, label in items])


@pytest.mark.filterwarnings("ignore:the model is run for all records at once")
def test_a_shared_tensor_that_is_as_long_as_the_batch() -> None:
    items = [((torch.arange(RECORDS) * number) % 9, number % 3) for number in range(RECORDS)]
    sums = []
    for mode in ("fast", "exact"):
        model = Places()

        def losses(
            tokens: Tensor, positions: Tensor, labels: Tensor, model: nn.Module = model
        ) -> Tensor:
            return functional.cross_entropy(model(tokens, positions), labels, reduction="none")

        training = training_of(model, losses, mode=mode)
        sums.append(sum_of_first_step(training, items, collate=with_places))
    fast, exact = sums
    for name, total in exact.items():
        torch.testing.assert_close(fast[name], total, rtol=1e-3, atol=1e-3)


class Switched(nn.Module):
    """Mixes records if an attribute says so."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.centred, self.act = nn.Linear(8, 3), False, torch.tanh

    def change(self, rows: Tensor) -> Tensor:
        return rows

    def forward(self, rows: Tensor) -> Tensor:
        made: Tensor = self.head(self.change(self.act(rows)))
        return made - made.mean(0) if self.centred else made


def centred(rows: Tensor) -> Tensor:
    return rows - rows.mean(0)


@pytest.mark.parametrize(
    ("name", "value"), [("centred", True), ("act", centred), ("change", partial(centred))]
)
@pytest.mark.parametrize("captured", [False, True])
def test_an_attribute_that_is_changed(name: str, value: object, *, captured: bool) -> None:
    model = Switched()
    training = training_of(model)
    if captured:
        step = training.captured_step((ROWS, LABELS), batch_size=RECORDS)
    else:
        lots = training.lots((ROWS, LABELS))
        step = partial(training.step, next(lots), batch_size=RECORDS)
    setattr(model, name, value)
    with pytest.raises(InvalidParameterError, match=r"they mix|captured_step"):
        step()


@pytest.mark.filterwarnings("ignore:the model is run for ")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_nothing_is_checked_twice_where_nothing_changes(
    kind: type[nn.LSTM] | type[nn.GRU], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = kind(2, 3, batch_first=True)
            self.calls = 0

        def forward(self, rows: Tensor) -> Tensor:
            self.calls += 1
            made: Tensor = self.cells(rows.unflatten(1, (4, 2)))[0][:, -1]
            return made

    run, runs = ModelCheck.run, []

    def counted(*arguments: Any) -> Any:
        runs.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(ModelCheck, "run", counted)
    training = training_of(Last())
    for lot in training.lots((ROWS, LABELS)):
        training.step(lot, batch_size=5)
    assert len(runs) == 1


@pytest.mark.parametrize("part", [lambda rows: -rows, lambda rows: rows - 1.0])
def test_what_mixes_for_other_numbers_than_pixels_is_found(
    part: Callable[[Tensor], Tensor],
) -> None:
    model = mlp()

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        changed = rows - torch.relu(part(rows)).mean(0)
        return functional.cross_entropy(model(changed), labels, reduction="none")

    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        training_of(model, losses).lots((ROWS, LABELS))


def test_numbers_that_losses_do_not_take_are_not_needed() -> None:
    model = nn.Linear(8, 8)

    def losses(rows: Tensor) -> Tensor:
        made = torch.sigmoid(model(rows))
        return functional.binary_cross_entropy(made, rows, reduction="none").mean(1)

    training, rows = training_of(model, losses), torch.rand(RECORDS, 8)
    for lot in training.lots(rows):
        training.step(lot, batch_size=RECORDS)
    assert training.progress.steps_left == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_class_of_made_up_records_differs(kind: Kind) -> None:
    record = {
        "number": 0,
        "class": torch.tensor(2),
        "one": torch.tensor([5]),
        "x": torch.tensor(0.5),
    }
    made = [imitation(record, kind, index, index) for index in range(4)]
    # Sequences of one integer do not, where they end with padding.
    for name in ("number", "class", "one")[: 1 if kind.startswith("ends") else 3]:
        assert sorted(int(one[name]) for one in made) == [0, 0, 1, 1]
    assert len({float(one["x"]) for one in made}) == 4


def test_mixing_by_the_only_integer_of_a_record_is_found() -> None:
    model = mlp()

    def losses(groups: Tensor, weights: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        shift = functional.one_hot(groups[0], 8).float()  # of the first record, for all
        return weights * functional.cross_entropy(model(rows + shift[:1]), labels, reduction="none")

    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        training_of(model, losses).lots((LABELS[:, None], torch.ones(RECORDS), ROWS, LABELS))
