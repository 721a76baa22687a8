"""Layers that are not trained, and still must not mix the records of a batch."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from training.chosen_way import check_training
from training.small_training import private, small_data

MIXES = "depends on other records of its batch|is another one when the record is alone"


class Headed(nn.Module):
    """A frozen body and a head that is trained."""

    def __init__(self, body: nn.Module, width: int, *, without_gradient: bool = False) -> None:
        super().__init__()
        self.body = body.requires_grad_(False)
        self.head = nn.Linear(width, 2)
        self.grad = not without_gradient

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.grad):
            if isinstance(self.body, nn.MultiheadAttention):
                made = self.body(inputs, inputs, inputs)[0]
            else:
                made = self.body(inputs)
                made = made[0] if isinstance(made, tuple) else made
        with torch.enable_grad():
            answer: Tensor = self.head(made)
        return answer


# Each takes the rows for time, positions or channels where its input lacks an axis.
BODIES: list[Callable[[], nn.Module]] = [
    lambda: nn.RNN(4, 4, batch_first=True),
    lambda: nn.LSTM(4, 4, batch_first=True),
    lambda: nn.GRU(4, 4, batch_first=True),
    lambda: nn.MultiheadAttention(4, 2, batch_first=True),
    lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
]


@pytest.mark.parametrize("without_gradient", [False, True])
@pytest.mark.parametrize("make", BODIES)
def test_rows_are_not_taken_for_something_else(
    make: Callable[[], nn.Module], *, without_gradient: bool
) -> None:
    model = Headed(make(), 4, without_gradient=without_gradient)
    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(model, torch.randn(6, 4))


def test_batches_are_taken() -> None:
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, batch_first=True)

        def forward(self, inputs: Tensor) -> Tensor:
            made: Tensor = self.layer(inputs)[0][:, -1]
            return made

    check_training(Headed(Last(), 4), torch.randn(6, 5, 3), 3)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Softmax(0), (4,)),
        (nn.Softmax(-2), (4,)),
        (nn.LogSoftmax(None), (2, 4)),
        (nn.Softmin(0), (2, 4)),
        (nn.Softmax2d(), (2, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_along_the_batch_is_refused(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(model, torch.randn(6, *shape))


class ByName(nn.Module):
    """A body that gets its inputs by name, and a head that is trained."""

    def __init__(self, body: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.body, self.names = body.requires_grad_(False), names
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        made = self.body(**dict.fromkeys(self.names, inputs))
        answer: Tensor = self.head(made[0] if isinstance(made, tuple) else made)
        return answer


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (nn.MultiheadAttention(4, 2, batch_first=True), ("query", "key", "value")),
        (nn.GRU(4, 4, batch_first=True), ("input",)),
        (nn.Softmax(0), ("input",)),
    ],
)
def test_inputs_by_name_are_looked_at(body: nn.Module, names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(ByName(body, names), torch.randn(6, 4))


class Aside(nn.Module):
    """A layer that is trained, and is called where its own gradient is not wanted, too."""

    def __init__(self, *, enabled: bool) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)
        self.enabled = enabled

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.enabled):
            beside = self.layer(inputs)[0].detach()
        answer: Tensor = self.head(self.layer(inputs[:, None])[0][:, 0] + beside)
        return answer


@pytest.mark.parametrize("enabled", [False, True])
def test_calls_without_a_gradient_are_looked_at(*, enabled: bool) -> None:
    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(Aside(enabled=enabled), torch.randn(6, 4))


def test_a_layer_that_is_put_in_later() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Identity(), nn.Linear(4, 3))
    training = private(model, seed=1)
    lot = next(training.lots(small_data()))
    model[1] = nn.Softmax(0)
    with pytest.raises(InvalidParameterError, match=MIXES):
        training.step(lot, batch_size=8)
    with pytest.raises(InvalidParameterError, match=MIXES):
        training.lots(small_data())
    assert training.progress.steps_spent == 1


def test_a_layer_outside_of_the_model() -> None:
    outside = nn.Softmax(0)

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        made: Tensor = outside(model(rows)).square().sum(1)
        return made

    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(nn.Linear(4, 2), torch.randn(6, 4), losses=losses)


class Shares(nn.Module):
    """Frozen layers on what all records share, and a softmax over fixed weights."""

    def __init__(self) -> None:
        super().__init__()
        self.vector = nn.Linear(5, 4).requires_grad_(False)
        self.table = nn.Conv1d(3, 4, 5).requires_grad_(False)
        self.alone = nn.Linear(4, 4).requires_grad_(False)
        self.mix = nn.Softmax(0)
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        shared = self.vector(torch.ones(5)) + self.table(torch.ones(3, 5)).flatten()
        rows = torch.stack([self.alone(row) for row in inputs])
        weights = self.mix(torch.arange(4.0))
        answer: Tensor = self.head((rows + shared) * weights)
        return answer


def test_what_all_records_share_is_taken() -> None:
    torch.manual_seed(0)
    check_training(Shares(), torch.randn(6, 4), 3)


def check_the_last_step(outside: nn.Module, steps: int, *, time_first: bool) -> None:
    """Train a head on the outputs of a layer outside of the model."""

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        inputs = rows.transpose(0, 1) if time_first else rows
        if isinstance(outside, nn.MultiheadAttention):
            made = outside(inputs[:1], inputs, inputs)[0].expand_as(inputs)
        else:
            made = outside(inputs)
        made = made[0] if isinstance(made, tuple) else made
        answer: Tensor = model(made[-1] if time_first else made[:, -1]).sum(1)
        return answer

    outside.requires_grad_(False)
    torch.manual_seed(0)
    check_training(nn.Linear(4, 2), torch.randn(6, steps, 4), losses=losses)


TIME_FIRST: list[Callable[[], nn.Module]] = [
    lambda: nn.LSTM(4, 4),
    lambda: nn.GRU(4, 4),
    lambda: nn.MultiheadAttention(4, 2),
    lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0),
]


@pytest.mark.parametrize("make", TIME_FIRST)
@pytest.mark.parametrize("steps", [1, 4])
def test_rows_are_not_taken_for_time(make: Callable[[], nn.Module], steps: int) -> None:
    with pytest.raises(InvalidParameterError, match=MIXES):
        check_the_last_step(make(), steps, time_first=False)


@pytest.mark.parametrize("make", TIME_FIRST)
@pytest.mark.parametrize("steps", [1, 4])  # also as many as there are records in the check
def test_time_may_come_first_outside(make: Callable[[], nn.Module], steps: int) -> None:
    check_the_last_step(make(), steps, time_first=True)


def test_a_layer_that_is_switched_for_one_call() -> None:
    model = nn.ModuleDict({"layer": nn.LSTM(4, 4, batch_first=True), "head": nn.Linear(4, 2)})
    layer = model["layer"].requires_grad_(False)
    assert isinstance(layer, nn.LSTM)

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        layer.batch_first = False
        made = layer(rows)[0][:, 0]
        layer.batch_first = True
        answer: Tensor = model.get_submodule("head")(made).sum(1)
        return answer

    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(model, torch.randn(6, 1, 4), losses=losses)


class Lasting(nn.Module):
    """A softmax over weights that are trained, and a frozen layer on a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(4))
        self.mix = nn.Softmax(0)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.register_buffer("table", torch.ones(2, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        shared = self.frozen(self.get_buffer("table")[1])
        # With an axis for rows of its own, as every use of a parameter in a layer.
        weights = self.mix(self.weights)[None]
        answer: Tensor = self.head(inputs * weights + shared)
        return answer


@pytest.mark.parametrize("rows", [2, 4])
def test_parameters_and_buffers_are_not_rows(rows: int) -> None:
    torch.manual_seed(0)
    check_training(Lasting(), torch.randn(rows, 4))


def test_a_parameter_that_is_not_of_the_model_may_hold_rows() -> None:
    outside = nn.Softmax(0)

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        made: Tensor = model(outside(nn.Parameter(rows, requires_grad=False))).sum(1)
        return made

    with pytest.raises(InvalidParameterError, match=MIXES):
        check_training(nn.Linear(4, 2), torch.randn(6, 4), losses=losses)
