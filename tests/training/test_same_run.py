"""Layers of the user's own that mix examples, or lose gradients: most are noticed and refused."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from training.brute_force import check_every_gradient, clipped
from training.small_training import RECORDS, sgd, small_plan

pytestmark = pytest.mark.filterwarnings("ignore:.* has no shortcut")

Body = Callable[["Own", Tensor], Any]


class Own(nn.Module):
    """A layer with a weight, and what a test wants to be done with it."""

    def __init__(self, body: Body, width: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.body = body
        self.state: Tensor | None = None

    def forward(self, inputs: Tensor) -> Any:
        return self.body(self, inputs)


def decides_by_the_batch(layer: Own, rows: Tensor) -> Tensor:
    made = rows @ layer.weight
    return torch.tanh(made) if rows.detach().sum() > 0 else -5.0 * torch.sin(made)


def centred(layer: Own, rows: Tensor) -> Tensor:
    return (rows - rows.mean(0)) @ layer.weight


def fork_and_drop(layer: Own, rows: Tensor) -> Tensor:
    with torch.random.fork_rng():
        return functional.dropout(rows @ layer.weight, 0.5)


def draws_by_python(layer: Own, rows: Tensor) -> Tensor:
    return rows @ layer.weight * random.random()  # noqa: S311


def remembers(layer: Own, rows: Tensor) -> Tensor:
    before = torch.zeros_like(rows) if layer.state is None else layer.state
    layer.state = torch.tanh(rows @ layer.weight + before @ layer.weight)
    return layer.state


@pytest.mark.parametrize(
    ("body", "examples"),
    [
        (decides_by_the_batch, 6),
        (centred, 6),
        (fork_and_drop, 6),
        (draws_by_python, 6),
        (draws_by_python, 1),
        (remembers, 1),
    ],
)
def test_what_is_another_run_is_refused(body: Body, examples: int) -> None:
    torch.manual_seed(0)
    random.seed(0)
    rows = torch.rand(examples, 3)
    rows[-1] = -40.0 if body is decides_by_the_batch else rows[-1]
    model = nn.Sequential(Own(body), nn.Linear(3, 3))
    assert clipped(model, rows, examples).norms.isnan().any()


def test_what_cannot_even_be_run_alone_is_refused() -> None:
    # The state that it has kept is that of the batch.
    model = nn.Sequential(Own(remembers), nn.Linear(3, 3))
    with pytest.raises(InvalidParameterError, match=r"'0'.* cannot be run again"):
        clipped(model, torch.rand(6, 3), 6)


@pytest.mark.parametrize("captured", [False, True])
def test_the_step_is_refused_and_spent(*, captured: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), Own(centred))
    training = PrivateTraining(model, sgd(model), small_plan(), seed=1)
    before = [part.detach().clone() for part in model.parameters()]
    data = torch.randn(RECORDS, 3)

    def step() -> None:
        if captured:
            training.captured_step(data, lambda rows: model(rows).square().sum(1), batch_size=8)()
            return
        for rows in next(training.lots(data)).batches(8):
            training.accumulate(model(rows).square().sum(1))
        training.step()

    with pytest.raises(InvalidParameterError, match="refused: layer '1' returns something else"):
        step()
    assert training.steps_spent == 1
    for part, known in zip(model.parameters(), before, strict=True):
        assert torch.equal(part, known)


def test_a_shared_argument_as_long_as_the_batch_is_refused() -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Own(lambda layer, pair: (pair[0] @ layer.weight) * pair[1][0])

        def forward(self, inputs: Tensor) -> Tensor:
            made: Tensor = self.layer((inputs, torch.arange(18.0).reshape(6, 3)))
            return made

    assert clipped(Masks(), torch.randn(6, 3), 6).norms.isnan().any()


def test_decisions_by_row_are_taken() -> None:
    def decides(layer: Own, rows: Tensor) -> Tensor:
        made = rows @ layer.weight
        return torch.stack([one.sin() if one.detach().sum() > 0 else -one for one in made])

    torch.manual_seed(1)
    check_every_gradient(nn.Sequential(nn.Linear(3, 3), Own(decides)), torch.randn(6, 3), 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_not_another_run(dtype: torch.dtype) -> None:
    # Differences of large numbers: the outputs are small, and rounded off in many ways.
    def cancels(layer: Own, rows: Tensor) -> Tensor:
        large = (1e3 * rows) @ layer.weight
        return large.sum(1, keepdim=True) - large.flip(1).sum(1, keepdim=True) + rows

    torch.manual_seed(2)
    model = Own(cancels, 64).to(dtype)
    assert clipped(model, torch.randn(32, 64, dtype=dtype), 32).norms.isfinite().all()


def masked(layer: Own, rows: Tensor) -> Tensor:
    return centred(layer, rows).masked_fill(torch.arange(3) > 1, -math.inf)


def test_infinite_numbers_hide_nothing() -> None:
    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        targets = torch.zeros(len(rows), dtype=torch.int64)
        return functional.cross_entropy(model(rows), targets, reduction="none")

    torch.manual_seed(0)
    rows = torch.randn(6, 3)
    assert clipped(Own(masked), rows, 6, losses=losses).norms.isnan().all()
    honest = Own(lambda layer, rows: (rows @ layer.weight).masked_fill(rows > 9.0, -math.inf))
    assert clipped(honest, rows, 6, losses=losses).norms.isfinite().all()


def test_outputs_that_are_rounding_alone() -> None:
    def cancels(layer: Own, rows: Tensor) -> Tensor:
        made = rows @ layer.weight
        return made.sum(1, keepdim=True) - made.flip(1).sum(1, keepdim=True)

    torch.manual_seed(0)
    assert clipped(Own(cancels, 64), torch.randn(32, 64), 32).norms.isfinite().all()


def test_losses_made_of_16_bits() -> None:
    # Small losses of large logits: rounding in 16 bits is a large share of them.
    def fitted(layer: Own, rows: Tensor) -> Tensor:
        logits = 60.0 * (rows @ layer.weight)
        return functional.cross_entropy(logits, logits.argmax(1), reduction="none")[:, None]

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made: Tensor = model(rows)
        return made.float().sum(1)

    torch.manual_seed(0)
    norms = clipped(Own(fitted, 64), torch.randn(64, 64), 64, losses=losses).norms
    assert norms.isfinite().all()


def test_checkpoints_are_refused() -> None:
    # Their second run would not have the parameters frozen, and swap what was saved.
    def saves(layer: Own, rows: Tensor) -> Any:
        return checkpoint(
            lambda part: torch.tanh(part @ layer.weight) @ layer.weight, rows, use_reentrant=False
        )

    model = nn.Sequential(nn.Linear(3, 3), Own(saves))
    with pytest.raises(InvalidParameterError, match="as activation checkpointing does"):
        clipped(model, torch.randn(3, 3), 3)


def fills_a_list(layer: Own, rows: Tensor) -> Tensor:
    made: list[Tensor] = []
    layer.inner(rows, made)  # type: ignore[operator]
    return made[0] + rows


def fills_a_dict(layer: Own, rows: Tensor) -> Tensor:
    made: dict[str, Tensor] = {}
    return layer.inner(rows, made) + made["state"]  # type: ignore[operator]


class Fills(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, rows: Tensor, place: Any) -> Tensor:
        made = rows @ self.weight
        if isinstance(place, list):
            place.append(made.sin())
        else:
            place["state"] = made.tanh()
        return made


@pytest.mark.parametrize("body", [fills_a_list, fills_a_dict])
def test_what_is_put_into_an_argument_is_refused(body: Body) -> None:
    model = Own(body)
    del model.weight
    model.inner = Fills()
    with pytest.raises(InvalidParameterError, match="'inner' changes a list or a dict"):
        clipped(model, torch.randn(6, 3), 6)


@pytest.mark.parametrize(
    "body",
    [
        lambda layer, rows: {"a": rows @ layer.weight}.values(),
        lambda layer, rows: (rows @ layer.weight, iter([rows @ layer.weight])),
        lambda layer, rows: (part for part in [rows @ layer.weight]),
        lambda layer, rows: (rows, lambda made=rows @ layer.weight: made, _late(rows)),
    ],
)
def test_tensors_that_cannot_be_seen_are_refused(body: Body) -> None:
    with pytest.raises(InvalidParameterError, match="that holds tensors, or may"):
        clipped(Own(body), torch.randn(6, 3), 6)


def _late(rows: Tensor) -> Callable[[], Tensor]:
    return lambda: rows


class Negated(torch.autograd.Function):
    """Changes its gradient in place, which torch forbids and does not notice."""

    @staticmethod
    def forward(_ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mul_(-1.0)


def test_gradients_changed_in_place() -> None:
    def negates(layer: Own, rows: Tensor) -> Tensor:
        made: Tensor = Negated.apply(rows @ layer.weight)  # type: ignore[no-untyped-call]
        return made

    torch.manual_seed(3)
    check_every_gradient(nn.Sequential(nn.Linear(3, 3), Own(negates)), torch.randn(6, 3), 3)


class AddsInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        made, _ = self.attention(inputs, inputs, inputs, need_weights=False)
        made += inputs
        return made


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (
            nn.Sequential(
                nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.ReLU(inplace=True)
            ),
            (2, 5, 5),
        ),
        (nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.ReLU(inplace=True)), (2, 3)),
        (
            nn.Sequential(
                nn.Linear(3, 3),
                Own(lambda layer, rows: (rows @ layer.weight)[:, :2]),
                nn.ReLU(inplace=True),
            ),
            (3,),
        ),
        (nn.Sequential(nn.Linear(4, 4), AddsInPlace()), (3, 4)),
    ],
    ids=["instance norm", "weight norm", "own", "attention"],
)
def test_a_view_that_is_changed_in_place_keeps_its_gradient(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(5)
    check_every_gradient(model, torch.randn(6, *shape), 3)
