"""Records whose losses, norms or gradients are not finite: they add nothing, and nobody is told."""

import math
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
from matrixdp.training.layers.gram import bounds_from_rows
from matrixdp.training.lots.batch import Sums
from matrixdp.training.noise.noisy_step import NoisyStep
from training.brute_force import clipped
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

SPOILT = 2
WAYS = ["fast", "exact", "captured"]


def mode_of(way: str) -> Any:
    return "exact" if way == "exact" else "fast"


class Twice(nn.Module):
    """Has a parameter with two uses, and one with a rule of its own for every example."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.RMSNorm(4)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.norm(self.layer(self.layer(inputs)))
        return made


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.layer(inputs)[0][:, -1]
        return made


LAYERS: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.Linear(4, 3), (4,)),
    (lambda: nn.Linear(40, 30), (3, 40)),  # by Gram matrices
    (lambda: nn.Linear(4, 3), (30, 4)),  # gradients kept
    (lambda: nn.Conv2d(8, 9, 3, padding=1), (8, 3, 3)),  # by Gram matrices
    (lambda: nn.Conv2d(2, 3, 3), (2, 12, 12)),  # gradients kept
    (lambda: nn.Conv1d(2, 3, 3), (2, 12)),
    (lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3)), (4,)),
    (lambda: nn.Sequential(nn.Conv1d(2, 4, 1), nn.GroupNorm(2, 4)), (2, 5)),
    (Last, (5, 4)),
    (Twice, (4,)),
]


def squares(model: nn.Module, inputs: Tensor) -> Tensor:
    made: Tensor = model(inputs)
    return made.flatten(1).square().sum(1)


@pytest.mark.parametrize("bad", [1e25, math.inf, math.nan])
@pytest.mark.parametrize(("make", "shape"), LAYERS)
@pytest.mark.parametrize("views", [1, 2])
def test_the_sum_is_that_of_the_others(
    make: Callable[[], nn.Module], shape: tuple[int, ...], bad: float, views: int
) -> None:
    torch.manual_seed(1)
    model, inputs = make(), torch.randn(6 * views, *shape)
    inputs[SPOILT * views].view(-1)[0] = bad
    others = [row for row in range(len(inputs)) if row // views != SPOILT]
    found = clipped(model, inputs, 6, losses=squares)
    expected = clipped(model, inputs[others], 5, losses=squares)
    moved = [(found.sums[part] - total).norm() for part, total in expected.sums.items()]
    # Some layers take 1e25 and have a gradient then, which is clipped.
    assert float(torch.stack(moved).norm()) <= (1.0 if math.isfinite(bad) else 1e-5)


@pytest.mark.parametrize("padding", [None, 0])
def test_embeddings_without_a_record(padding: int | None) -> None:
    torch.manual_seed(1)
    model = nn.Embedding(5, 3, padding_idx=padding)
    tokens = torch.randint(0, 5, (6, 4))
    tokens[SPOILT] = torch.tensor([0, 1, 1, 2])
    factors = torch.ones(6)
    factors[SPOILT] = math.inf

    def losses(model: nn.Module, tokens: Tensor) -> Tensor:
        return squares(model, tokens) * factors[: len(tokens)]

    found = clipped(model, tokens, 6, losses=losses)
    others = clipped(model, tokens[[0, 1, 3, 4, 5]], 5, losses=squares)
    for parameter, total in others.sums.items():
        torch.testing.assert_close(found.sums[parameter], total)


def step_by(training: PrivateTraining, data: Any, way: str) -> None:
    if way == "captured":
        training.captured_step(data, batch_size=16)()
    else:
        train(training, steps=1, size=16, data=data)


def sums_of_a_step(
    data: tuple[Tensor, Tensor],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    losses: Callable[..., Tensor] = cross_entropy,
) -> Tensor:
    """Return the sums that the first step of a training adds noise to; it must not raise."""
    found: list[Tensor] = []
    taken = NoisyStep.take

    def take(step: NoisyStep, sums: Sums, number: int) -> None:
        # Of a parameter that no record uses there is no sum.
        parts = [sums.get(part, torch.zeros_like(part)) for part in model.parameters()]
        found.append(torch.cat([part.flatten().double() for part in parts]))
        taken(step, sums, number)

    model, records = small_model(), len(data[0])
    plan = small_plan(records=records, lot_size=records)
    training = private(model, plan, losses=partial(losses, model), mode=mode_of(way))
    before = weights(model)
    with monkeypatch.context() as patch:
        patch.setattr(NoisyStep, "take", take)
        step_by(training, data, way)
    assert not torch.equal(weights(model), before)
    assert weights(model).isfinite().all()
    return found[0]


@pytest.mark.parametrize(
    "bad",
    [1e25, math.nan]
    + [pytest.param(value, marks=pytest.mark.thorough) for value in (-1e38, math.inf)],
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("index", [3, -1])  # the last one also fills up the last batch
def test_no_step_tells_whether_an_outlier_is_there(
    way: str, bad: float, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, targets = small_data()
    inputs[index, 1] = bad
    kept = torch.arange(len(inputs)) != index % len(inputs)
    whole = sums_of_a_step((inputs, targets), way, monkeypatch)
    without = sums_of_a_step((inputs[kept], targets[kept]), way, monkeypatch)
    assert float((whole - without).norm()) <= small_plan().sensitivity + 1e-6
    if not math.isfinite(bad):
        torch.testing.assert_close(whole, without, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_with_a_gradient_that_is(
    way: str, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = 7.0

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, inputs, targets) + torch.where(inputs[:, 0] == mark, bad, 0.0)

    inputs, targets = small_data()
    inputs[3, 0] = mark
    kept = torch.arange(len(inputs)) != 3
    whole = sums_of_a_step((inputs, targets), way, monkeypatch, losses)
    without = sums_of_a_step((inputs[kept], targets[kept]), way, monkeypatch, losses)
    torch.testing.assert_close(whole, without, rtol=0.0, atol=1e-5)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_groups_leave_out_a_record_together(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the first layer's gradient overflows: the second one's is clipped in a group of its own.
    found: list[Sums] = []
    monkeypatch.setattr(NoisyStep, "take", lambda _step, sums, _number: found.append(sums))
    model = small_model()

    def losses(rows: Tensor) -> Tensor:
        hidden = model[0](rows).nan_to_num(0.0, 0.0, 0.0)
        made: Tensor = model[2](hidden + 1.0)[:, 0]
        return made

    plan = small_plan(records=1, lot_size=1, clip_norm={"0": 1.0, "2": 1.0})
    training = private(model, plan, losses=losses, mode=mode, seed=1)
    train(training, steps=1, data=torch.full((1, 6), math.inf))
    assert all(not part.any() for part in found[0].values())


@pytest.mark.parametrize("way", WAYS)
def test_a_constant_loss_adds_nothing(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole lot too: that no loss depends on a parameter may be due to its records."""

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(model, inputs, targets)
        return found.detach() if bool((targets == 2).all()) else found

    inputs, _ = small_data()
    sums = sums_of_a_step((inputs, torch.full((len(inputs),), 2)), way, monkeypatch, losses)
    assert not sums.any()


@pytest.mark.parametrize("way", WAYS)
def test_weights_that_are_not_finite_are_refused_before_a_step_is_spent(way: str) -> None:
    model, data = small_model(), small_data()
    training = private(model, mode=mode_of(way))
    step: Callable[[], object] = partial(next, training.lots(data))
    if way == "captured":
        step = training.captured_step(data, batch_size=8)
    with torch.no_grad():
        next(reversed(list(model.parameters())))[1] = math.nan
    with pytest.raises(InvalidParameterError, match=r"parameter '2\.bias' holds NaN or infinity"):
        step()
    assert training.progress.steps_spent == 0


def test_losses_of_made_up_records_that_are_not_finite() -> None:
    """With gradients that are: no way to form gradients is refused for it."""
    model = small_model()

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, inputs, targets) + torch.where(targets == 1, math.inf, 0.0)

    training = private(model, losses=losses, seed=1)
    train(training)  # and no warning, which would be an error
    assert training.progress.steps_left == 0


def test_debugging_does_not_protect() -> None:
    guarantee = private(small_model(), debug=True).guarantee
    assert not guarantee.protects
    assert "a step stops at records that are not finite" in str(guarantee)
    assert private(small_model()).guarantee.protects


def test_rows_of_gram_matrices_that_overflow_to_one_side() -> None:
    sizes = torch.full((1, 2), 1.8e19)
    bounds = bounds_from_rows(torch.tensor([[-math.inf, 3e38]]), sizes, sizes, 4, 0.0)
    assert not bounds.values.isfinite().any()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_outside_of_the_model_gets_a_gradient_in_batches_of_one(way: str) -> None:
    model = small_model()
    temperature = torch.ones(1, requires_grad=True)  # as long as the batch
    temperature.grad = before = torch.full((1,), 5.0)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, inputs, targets) * (1e3 * temperature)

    training = private(model, losses=losses, mode=mode_of(way), seed=1)
    if way == "captured":
        training.captured_step(small_data(), batch_size=1)()
    else:
        train(training, steps=1, size=1)
    assert temperature.grad is before
    assert float(before) == 5.0


@pytest.mark.parametrize("way", WAYS)
def test_records_that_the_losses_leave_out(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(model, inputs, targets.clamp(min=0))
        return found[targets >= 0]

    inputs, targets = small_data()
    targets[3] = -100
    kept = torch.arange(len(inputs)) != 3
    whole = sums_of_a_step((inputs, targets), way, monkeypatch, losses)
    without = sums_of_a_step((inputs[kept], targets[kept]), way, monkeypatch, losses)
    torch.testing.assert_close(whole, without, rtol=0.0, atol=1e-5)


def at_once(weight: Tensor, inputs: Tensor) -> Tensor:
    return functional.linear(inputs, weight)


def one_by_one(weight: Tensor, inputs: Tensor) -> Tensor:
    """Decide by numbers, which vmap cannot."""
    rows = [row if float(row[0]) < 1e9 else 2.0 * row for row in inputs.detach()]
    return functional.linear(torch.stack(rows), weight)


@pytest.mark.filterwarnings("ignore:the model is run for ")
@pytest.mark.parametrize(
    ("way", "run", "bad"),
    [
        ("fast", at_once, math.inf),
        ("fast", one_by_one, math.nan),
        ("captured", at_once, math.nan),
        ("captured", one_by_one, math.inf),
    ],
)
def test_losses_that_are_not_finite_where_models_are_run_per_record(
    way: str, bad: float, run: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gradients that are; the weight is used without its layer."""
    mark = 7.0

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        passed_by = run(model.get_parameter("0.weight"), inputs).square().sum(1)
        entropy = cross_entropy(model, inputs, targets)
        return entropy + passed_by + torch.where(inputs[:, 0] == mark, bad, 0.0)

    inputs, targets = small_data()
    inputs[3, 0] = mark
    kept = torch.arange(len(inputs)) != 3
    whole = sums_of_a_step((inputs, targets), way, monkeypatch, losses)
    without = sums_of_a_step((inputs[kept], targets[kept]), way, monkeypatch, losses)
    torch.testing.assert_close(whole, without, rtol=0.0, atol=1e-5)
