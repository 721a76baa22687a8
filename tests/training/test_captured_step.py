"""Captured steps: the loop over lots in batches of a fixed shape, where filling up adds nothing."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import Dataset, TensorDataset

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.training import PrivateTraining
from matrixdp.training.lots.captured_sum import CapturedSum
from matrixdp.training.lots.lot import Division
from matrixdp.training.lots.records import TensorRecords
from matrixdp.training.lots.sampling import SecureCoins, SeededCoins, drawn_records
from matrixdp.training.model.trainable import Trainable
from training.captured_training import SEED, captured, made
from training.small_training import (
    RECORDS,
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

WITHOUT_THE_FIRST = 12  # a seed whose first lot lacks the first record
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def take_all(training: PrivateTraining, step: Callable[[], None]) -> None:
    while training.progress.steps_left:
        step()


def mirrored(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return losses of rows whose second view of each record is mirrored."""
    signs = 1.0 - 2.0 * (torch.arange(len(inputs), device=inputs.device) % 2)[:, None]
    return cross_entropy(model, inputs * signs, targets)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "size", [3, 100] + [pytest.param(size, marks=pytest.mark.thorough) for size in (1, 8)]
)
@pytest.mark.parametrize("changes", [{}, {"views": 2}, {"clip_norm": {"0": 0.2, "": 0.7}}], ids=str)
def test_a_captured_step_is_that_of_the_loop(
    device: str, size: int, changes: dict[str, Any]
) -> None:
    losses = mirrored if changes.get("views") == 2 else cross_entropy
    options: dict[str, Any] = {"noise_multiplier": 0.1, "losses": losses} | changes
    model, training = made(device, **options)
    train(training, data=tuple(part.to(device) for part in small_data()))
    other, repeated = made(device, **options)
    take_all(repeated, captured(other, repeated, size=size))
    rtol, atol = (1e-5, 1e-6) if device == "cpu" else (1e-3, 1e-4)
    torch.testing.assert_close(weights(other), weights(model), rtol=rtol, atol=atol)
    assert repeated.progress.steps_left == 0


@pytest.mark.parametrize("device", DEVICES)
def test_sixteen_bits(device: str) -> None:
    def autocast(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast(device, dtype=torch.bfloat16):
            return cross_entropy(model, inputs, targets)

    found = []
    for size in (5, 40):
        model, training = made(device, noise_multiplier=0.1, losses=autocast)
        take_all(training, captured(model, training, size=size))
        found.append(weights(model))
    torch.testing.assert_close(*found, rtol=1e-2, atol=1e-3)


def test_a_step_without_gradients_around_it() -> None:
    model, training = made()
    step = captured(model, training)
    with torch.no_grad():
        step()
    other, repeated = made()
    captured(other, repeated)()
    assert torch.equal(weights(model), weights(other))


@pytest.mark.parametrize("device", DEVICES)
def test_records_outside_of_the_lot_do_not_matter(device: str) -> None:
    rate = small_plan().exact_rate
    numbers = drawn_records(SeededCoins(WITHOUT_THE_FIRST), RECORDS, rate, 0)
    assert 0 not in numbers  # what a careless filling would use
    assert len(numbers) % 8
    inputs, targets = small_data()
    spoilt = torch.full_like(inputs, math.nan)
    spoilt[numbers] = inputs[numbers]
    found = []
    for rows in (inputs, spoilt):
        model, training = made(device, seed=WITHOUT_THE_FIRST)
        captured(model, training, data=(rows.to(device), targets.to(device)))()
        found.append(weights(model))
    assert torch.equal(*found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [SEED, None], ids=["simulated", "exact"])
def test_an_empty_lot_has_noise_and_a_step(device: str, seed: int | None) -> None:
    runs = []

    def counted(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        runs.append(1)
        return cross_entropy(model, inputs, targets)

    model, training = made(device, seed=seed, lot_size=1, steps=60, losses=counted)
    step = captured(model, training, size=40)
    empty = 0
    while training.progress.steps_left:
        before, so_far = weights(model), len(runs)
        step()
        empty += len(runs) == so_far
        assert not torch.equal(weights(model), before)
    assert empty > 0  # a lot is empty with probability 0.36: none of 60 with one of 1e-12
    # On a GPU no step calls it, since the graph is repeated.
    assert empty == 60 or device == "cpu"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [SEED, None], ids=["simulated", "exact"])
def test_debugging_stops_at_what_is_not_finite(device: str, seed: int | None) -> None:
    inputs, targets = (part.to(device) for part in small_data())
    model, training = made(device, seed=seed, lot_size=40, debug=True)
    step = captured(model, training, data=(inputs, targets), size=16)
    before = weights(model)
    inputs[38, 2] = math.inf
    with pytest.raises(InvalidParameterError, match="losses or gradients are not finite"):
        step()
    assert training.progress.steps_spent == 1  # it looked at the data
    assert torch.equal(weights(model), before)
    # What was not finite does not stay in the sums.
    inputs[38, 2] = 0.0
    step()
    assert weights(model).isfinite().all()


def test_debugging_stops_at_losses_whose_gradients_are_finite() -> None:
    def shifted(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        # No made-up record has this class.
        return cross_entropy(model, inputs, targets) + torch.where(targets == 2, math.inf, 0.0)

    model, training = made(lot_size=40, debug=True, losses=shifted)
    step = captured(model, training, size=40)
    with torch.no_grad(), pytest.raises(InvalidParameterError, match="losses or gradients are not"):
        step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [optim.Adam, optim.RMSprop, optim.NAdam])
def test_optimisers_and_schedules(device: str, make: Callable[..., optim.Optimizer]) -> None:
    found = []
    for way in ("loop", "captured"):
        model = small_model().to(device)
        optimizer = make(model.parameters(), lr=0.1)
        scheduler = StepLR(optimizer, step_size=1, gamma=0.5)
        losses = partial(cross_entropy, model)
        training = PrivateTraining(model, losses, optimizer, small_plan(), seed=SEED)
        if way == "loop":
            for lot in training.lots(tuple(part.to(device) for part in small_data())):
                training.step(lot, batch_size=8)
                scheduler.step()
        else:
            step = captured(model, training)
            while training.progress.steps_left:
                step()
                scheduler.step()
        found.append(weights(model))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_exactly_the_planned_steps() -> None:
    model, training = made()
    step = captured(model, training)
    take_all(training, step)
    after = weights(model)
    with pytest.raises(BudgetExceededError, match="all steps=4"):
        step()
    with pytest.raises(BudgetExceededError, match="all steps=4"):
        captured(model, training)
    assert torch.equal(weights(model), after)


def test_a_step_is_spent_before_its_lot_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "steps.spent"
    model, training = made(seed=None, spending=path)
    step = captured(model, training)
    monkeypatch.setattr(SecureCoins, "words", killed)
    with pytest.raises(KeyboardInterrupt):
        step()
    assert training.progress.steps_spent == 1
    assert '{"step": 1}' in path.read_text()


def test_resuming(tmp_path: Path) -> None:
    whole, training = made()
    take_all(training, captured(whole, training))
    path = tmp_path / "steps.spent"
    model, training = made(spending=path)
    step = captured(model, training)
    step()
    step()
    kept, state = model.state_dict(), training.state_dict()
    resumed, later = made(spending=path)
    later.load_state_dict(state)
    step = captured(resumed, later)
    # This writes into the same memory, so the step may be captured before.
    resumed.load_state_dict(kept)
    take_all(later, step)
    assert later.progress.steps_spent == 4
    assert torch.equal(weights(resumed), weights(whole))


def test_a_lot_that_was_given_up_counts() -> None:
    model, training = made()
    step = captured(model, training)
    lot = next(training.lots(small_data()))
    step()
    assert training.progress.steps_spent == 2
    with pytest.raises(InvalidParameterError, match="was given up for a later one"):
        training.step(lot, batch_size=8)


def test_gradients_of_ones_own_between_steps() -> None:
    found = []
    for own in (False, True):
        model, training = made()
        step = captured(model, training)
        while training.progress.steps_left:
            if own:
                model(torch.ones(1, 6)).sum().backward()
            step()
        found.append(weights(model))
    assert torch.equal(*found)


def test_real_randomness() -> None:
    model, training = made(seed=None)
    take_all(training, captured(model, training, data=TensorDataset(*small_data())))
    assert training.guarantee.protects


def test_one_tensor_is_handed_over_as_it_is() -> None:
    inputs, _ = small_data()
    model = small_model()
    training = private(model, losses=lambda rows: model(rows).square().sum(1), seed=SEED)
    training.captured_step(inputs, batch_size=8)()
    assert training.progress.steps_spent == 1


def test_changes_of_the_model() -> None:
    model, training = made()
    step = captured(model, training)
    model.eval()
    with pytest.raises(InvalidParameterError, match=r"switched between train\(\) and eval\(\)"):
        step()
    model.train()
    step()
    activation = model[1]
    for other in (nn.Sequential(nn.Tanh()), nn.ReLU()):
        model[1] = other  # has no parameters, but a graph would go on without it
        with pytest.raises(InvalidParameterError, match="'1' was added, removed"):
            step()
    model[1] = activation
    weight = model.get_parameter("2.weight")
    former = weight.data
    weight.data = former.clone()
    with pytest.raises(InvalidParameterError, match=r"'2\.weight' was added, .* moved in memory"):
        step()
    weight.data = former
    model.get_parameter("2.bias").requires_grad_(False)
    with pytest.raises(InvalidParameterError, match=r"'2\.bias' was removed or frozen"):
        step()
    assert training.progress.steps_spent == 1


def test_other_losses() -> None:
    model, training = made()
    step = captured(model, training)
    former = training.losses
    training.losses = partial(mirrored, model)
    with pytest.raises(InvalidParameterError, match=r"training\.losses was set after"):
        step()
    assert training.progress.steps_spent == 0
    training.losses = former
    step()


class Items(Dataset[tuple[Tensor, Tensor]]):
    """A data set that is read item by item."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        inputs, targets = small_data()
        return inputs[number], targets[number]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": Items()}, "Items: a captured step needs tensors"),
        ({"data": small_data()[0][:7]}, "7 records, but the plan"),
        ({"size": 0}, "batch_size=0"),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], message: str) -> None:
    model, training = made()
    with pytest.raises(InvalidParameterError, match=message):
        captured(model, training, **options)
    assert training.progress.steps_spent == 0
    train(training)


def test_data_that_is_not_where_the_model_is() -> None:
    nothing: Any = None
    model = small_model()
    trainable = Trainable(model, (sgd(model),), small_plan(), "fast")
    elsewhere = TensorRecords((torch.empty(RECORDS, 6, device="meta"),), alone=True)
    options: dict[str, Any] = {"division": Division(RECORDS, 10, 8), "views": 1, "debug": False}
    with pytest.raises(InvalidParameterError, match="the data is on meta and the model on cpu"):
        CapturedSum(model, nothing, trainable, elsewhere, **options)


def test_mode_exact_is_not_captured() -> None:
    model = small_model()
    with pytest.raises(InvalidParameterError, match="one record at a time"):
        captured(model, private(model, mode="exact"))
