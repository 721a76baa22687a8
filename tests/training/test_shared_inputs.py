"""An input that all records share may be as long as a batch, and must not be taken for it."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining
from matrixdp.training.lots import batch_sizes, uneven_sizes
from training.small_training import RECORDS, sgd, small_data, small_model, small_plan, train

LENGTH = 8


class Positions(nn.Module):
    """Tokens and positions, looked up once for all records or once for each."""

    def __init__(self, *, shared: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 4)
        self.positions = nn.Embedding(LENGTH, 4)
        self.head = nn.Linear(4, 3)
        self._shared = shared

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(LENGTH)
        places = places if self._shared else places.expand(len(tokens), -1)
        made: Tensor = self.head((self.tokens(tokens) + self.positions(places)).tanh().sum(1))
        return made


class TimeFirst(nn.Module):
    """Puts positions in front of records for a layer in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 4)
        self.mixer = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed = self.mixer(self.tokens(tokens).transpose(0, 1)).transpose(0, 1)
        made: Tensor = self.head(mixed.tanh().sum(1))
        return made


def token_data() -> Tensor:
    return torch.randint(0, 10, (RECORDS, LENGTH), generator=torch.Generator().manual_seed(3))


def squares(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def losses(tokens: Tensor) -> Tensor:
        made: Tensor = model(tokens)
        return made.square().sum(1)

    return losses


@pytest.mark.parametrize("make", [lambda: Positions(shared=True), TimeFirst])
@pytest.mark.parametrize(("size", "views"), [(8, 1), (4, 2), (2, 4), (3, 1), (1, 1)])
def test_captured_steps(make: Callable[[], nn.Module], size: int, views: int) -> None:
    model = make()
    training = PrivateTraining(model, sgd(model), small_plan(views=views))
    # As long as the batch, and so noticed in the trial only, or of another length.
    message = "give each record a copy" if size * views == LENGTH else "keep the batch"
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        training.captured_step(token_data(), squares(model), batch_size=size)
    assert training.steps_spent == 0
    assert all(part.requires_grad and part.grad is None for part in model.parameters())


@pytest.mark.parametrize("size", [1, 2, 3, LENGTH])
def test_a_copy_for_each_record(size: int) -> None:
    model = Positions(shared=False)
    training = PrivateTraining(model, sgd(model), small_plan(views=2), seed=1)
    training.captured_step(token_data(), squares(model), batch_size=size)()
    assert training.steps_spent == 1


def test_a_number_of_rows_that_is_fixed() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())

    def fixed(rows: Tensor) -> Tensor:
        return (model(rows) * torch.ones(8, 1)).sum(1)

    with pytest.raises(InvalidParameterError, match="take the number of rows from the inputs"):
        training.captured_step(small_data()[0], fixed, batch_size=8)


def test_a_trial_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    found = []
    for trial in (True, False):
        if not trial:
            monkeypatch.setattr(
                "matrixdp.training.padded.PaddedLotSum._try_another_size", lambda _: None
            )
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(), nn.Linear(5, 3))
        model.register_buffer("kept", torch.ones(3))
        training = PrivateTraining(model, sgd(model), small_plan(), seed=1)

        def losses(rows: Tensor, model: nn.Module = model) -> Tensor:
            sizes.append(len(rows))
            made: Tensor = model(rows)
            return made.square().sum(1)

        training.captured_step(small_data()[0], losses, batch_size=8)
        assert training.steps_spent == 0
        found.append((torch.get_rng_state(), *model.state_dict().values()))
    assert sizes == [8, 2, 8]
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_a_single_record_in_the_data() -> None:
    model = small_model()
    plan = small_plan(records=1, lot_size=1)
    training = PrivateTraining(model, sgd(model), plan, seed=1)
    training.captured_step(small_data()[0][:1], squares(model), batch_size=1)()
    assert training.steps_spent == 1


@given(st.integers(0, 60), st.integers(1, 12))
def test_sizes_that_are_not_all_the_same(records: int, most: int) -> None:
    sizes = batch_sizes(records, most)
    uneven = uneven_sizes(sizes)
    assert sum(uneven) == sum(sizes) == records
    assert all(0 < size <= most for size in uneven)
    # A batch of one record has none that it could be mixed with.
    assert len(set(uneven)) > 1 or set(uneven) <= {1}


@pytest.mark.parametrize("records", [LENGTH, RECORDS])
def test_the_loop_over_lots(records: int) -> None:
    # Every lot has all of the records: one batch as long as the positions, or five of them.
    model = Positions(shared=True)
    data = token_data()[:records]
    plan = small_plan(records=records, lot_size=records)
    training = PrivateTraining(model, sgd(model), plan, seed=1)

    def take_a_step() -> None:
        lot = next(training.lots(data))
        for tokens in lot.batches(LENGTH):
            training.accumulate(squares(model)(tokens))
        training.step()

    with pytest.raises(ShapeError, match="keep the batch as the first axis"):
        take_a_step()
    assert training.steps_spent == 1  # since its lot was drawn


def test_only_the_first_lot_is_divided() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    sizes: list[int] = []

    def losses(model: nn.Module, inputs: Tensor, _targets: Tensor) -> Tensor:
        sizes.append(len(inputs))
        made: Tensor = model(inputs)
        return made.square().sum(1)

    train(training, model, size=40, losses=losses)
    assert sizes == [21, 19, 40, 40, 40]
