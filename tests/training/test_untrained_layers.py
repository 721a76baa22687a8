"""Layers that are not trained, and still must not mix the records of a batch."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.recording import Recording
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
    (lambda: nn.Linear(6, 4), (6,)),
]


@pytest.mark.parametrize("without_gradient", [False, True])
@pytest.mark.parametrize(("make", "shape"), BODIES)
def test_rows_are_not_taken_for_something_else(
    make: Callable[[], nn.Module], shape: tuple[int, ...], *, without_gradient: bool
) -> None:
    model = Headed(make(), 4, without_gradient=without_gradient)
    with pytest.raises(ShapeError, match="takes for a single example"):
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


@pytest.mark.parametrize("layer", [nn.Softmax(0), nn.LogSoftmax(None), nn.Softmin(), nn.GLU(0)])
def test_softmax_over_the_batch_is_refused(layer: nn.Module) -> None:
    with pytest.raises(InvalidParameterError, match=r"'1' is a .* with dim=.*axis of the batch"):
        Recording(nn.Sequential(nn.Linear(3, 4), layer))
    Recording(nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.GLU()))
