"""Layers that are not trained, and still must not mix the records of a batch."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import ShapeError
from training.brute_force import check_against_brute_force, clipped

pytestmark = pytest.mark.filterwarnings("ignore:.* has no shortcut")


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
BODIES: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.RNN(4, 4, batch_first=True), (6, 4)),
    (lambda: nn.LSTM(4, 4, batch_first=True), (6, 4)),
    (lambda: nn.GRU(4, 4, batch_first=True), (6, 4)),
    (lambda: nn.MultiheadAttention(4, 2, batch_first=True), (6, 4)),
    (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), (6, 4)),
    (lambda: nn.Conv1d(6, 6, 1), (6, 4)),
]


@pytest.mark.parametrize("without_gradient", [False, True])
@pytest.mark.parametrize(("make", "shape"), BODIES)
def test_rows_are_not_taken_for_something_else(
    make: Callable[[], nn.Module], shape: tuple[int, ...], *, without_gradient: bool
) -> None:
    model = Headed(make(), 4, without_gradient=without_gradient)
    with pytest.raises(ShapeError, match="would mix its 6 rows"):
        clipped(model, torch.randn(*shape), 6)


def test_batches_are_taken() -> None:
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(3, 4, batch_first=True)

        def forward(self, inputs: Tensor) -> Tensor:
            made: Tensor = self.layer(inputs)[0][:, -1]
            return made

    check_against_brute_force(Headed(Last(), 4), torch.randn(6, 5, 3), 3, bounds=(0.7,))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Softmax(0), (4,)),
        (nn.Softmax(-2), (4,)),
        (nn.LogSoftmax(None), (2, 4)),
        (nn.Softmin(0), (2, 4)),
        (nn.GLU(0), (4,)),
        (nn.Softmax2d(), (2, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_softmax_along_the_batch_is_refused(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(ShapeError, match=r"'1' got .* would mix its 6 rows"):
        clipped(
            model,
            torch.randn(6, *shape),
            6,
            losses=lambda model, rows: model(rows).sum() * rows.flatten(1).sum(1),
        )


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
    check_against_brute_force(Shares(), torch.randn(6, 4), 3, bounds=(0.7,))
