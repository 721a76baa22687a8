"""Steps that were spent stay spent: after a kill, a resume, a fork, another checkpoint."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import (
    BudgetExceededError,
    InvalidParameterError,
    StorageError,
)
from matrixdp.training import PrivateTraining
from matrixdp.training.account import StepAccount
from matrixdp.training.step_noise import StepNoise
from training.small_training import (
    cross_entropy,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.spent"


def test_no_more_steps_than_planned_are_spent() -> None:
    account = StepAccount(small_plan(steps=1), None, "fast", None)
    account.spend()
    with pytest.raises(BudgetExceededError, match="all steps=1"):
        account.spend()
    assert account.spent == 1


def test_checkpoints_that_are_none(path: Path) -> None:
    nothing: Any = None
    model = small_model()
    options: dict[str, Any]
    for options in ({"record": path}, {"seed": 1}):
        training = PrivateTraining(model, sgd(model), small_plan(), **options)
        with pytest.raises(InvalidParameterError, match="is a NoneType"):
            training.load_state_dict(nothing)
        for spent in ("3", None, True, 1.5, -5, 99):
            with pytest.raises(InvalidParameterError, match=r"steps_spent=.* from 0 to steps=4"):
                training.load_state_dict(training.state_dict() | {"steps_spent": spent})


class Killed(BaseException):
    """What no code may catch: the process ends here."""


def test_a_kill_between_the_record_and_the_draw(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = StepNoise.noisy_means

    def killed(
        noise: StepNoise, matrices: Sequence[Tensor], step: int, divisor: float
    ) -> Iterator[tuple[nn.Parameter, Tensor]]:
        if step == 1:
            raise Killed
        return drawn(noise, matrices, step, divisor)

    model = small_model()
    before_the_draw = PrivateTraining(model, sgd(model), small_plan(), record=path)
    with monkeypatch.context() as patched:
        patched.setattr(StepNoise, "noisy_means", killed)
        with pytest.raises(Killed):
            train(before_the_draw, model)
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), record=path)
    assert (training.steps_spent, training.steps_left) == (2, 2)
    train(training, model)
    with pytest.raises(BudgetExceededError):
        training.lots(small_data())


def test_resuming_from_an_older_checkpoint(path: Path) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(steps=7), record=path)
    train(training, model, steps=2)
    checkpoint = {"model": model.state_dict(), "training": training.state_dict()}
    train(training, model, steps=3)
    assert training.steps_spent == 5
    for spent in (5, 6):  # twice
        model = small_model()
        training = PrivateTraining(model, sgd(model), small_plan(steps=7), record=path)
        model.load_state_dict(checkpoint["model"])
        training.load_state_dict(checkpoint["training"])
        assert (training.steps_spent, training.steps_left) == (spent, 7 - spent)
        train(training, model, steps=1)
    assert training.steps_left == 0


def test_without_a_checkpoint_steps_stay_spent(path: Path) -> None:
    model = small_model()
    train(PrivateTraining(model, sgd(model), small_plan(), record=path), model, steps=3)
    assert PrivateTraining(model, sgd(model), small_plan(), record=path).steps_left == 1
    with pytest.raises(InvalidParameterError, match="another plan"):
        PrivateTraining(model, sgd(model), small_plan(steps=9), record=path)
    with pytest.raises(InvalidParameterError, match="mode or seed"):
        PrivateTraining(model, sgd(model), small_plan(), record=path, seed=1)


def test_a_run_keeps_its_mode(path: Path) -> None:
    # The guarantee of the mode exact is about all steps of the plan.
    model = small_model()
    fast = PrivateTraining(model, sgd(model), small_plan(), record=path)
    train(fast, model, steps=3)
    with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or seed"):
        PrivateTraining(model, sgd(model), small_plan(), record=path, mode="exact")
    experiment = PrivateTraining(model, sgd(model), small_plan(), seed=1)
    exact = PrivateTraining(model, sgd(model), small_plan(), seed=1, mode="exact")
    with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or seed"):
        exact.load_state_dict(experiment.state_dict())


def test_a_lot_counts_as_soon_as_it_is_drawn(path: Path) -> None:
    # A crash may depend on the lot. Were such lots drawn anew for free, those that are used would
    # be no Poisson samples any more.
    model = small_model()
    for spent in range(2):
        training = PrivateTraining(model, sgd(model), small_plan(), record=path)
        assert training.steps_spent == spent
        lot = next(training.lots(small_data()))
        next(lot.batches(8))
        del training, lot
    assert PrivateTraining(model, sgd(model), small_plan(), record=path).steps_left == 2


def test_checkpoints_that_do_not_belong_to_the_record(path: Path) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), record=path)
    train(training, model, steps=1)
    early = path.read_bytes()
    train(training, model, steps=1)
    state = training.state_dict()
    # The record of an earlier time was put back.
    path.write_bytes(early)
    older = PrivateTraining(model, sgd(model), small_plan(), record=path)
    with pytest.raises(InvalidParameterError, match="lost steps"):
        older.load_state_dict(state)
    # The record of another run of the same plan.
    other = PrivateTraining(model, sgd(model), small_plan(), record=path.with_name("other"))
    train(other, model, steps=3)
    with pytest.raises(InvalidParameterError, match="does not belong to this spending file"):
        other.load_state_dict(state)
    unrecorded = PrivateTraining(model, sgd(model), small_plan())
    with pytest.raises(InvalidParameterError, match="record=path"):
        unrecorded.load_state_dict(unrecorded.state_dict())
    for wrong in ({}, state | {"plan": "x"}, state | {"seed": 3}, state | {"mode": "exact"}):
        with pytest.raises(InvalidParameterError, match="another plan, mode or seed"):
            training.load_state_dict(wrong)


@pytest.mark.parametrize("recorded", [True, False])
def test_an_experiment_continues_as_if_nothing_had_happened(path: Path, *, recorded: bool) -> None:
    whole = small_model()
    train(PrivateTraining(whole, sgd(whole), small_plan(), seed=5), whole)
    record = path if recorded else None
    first = small_model()
    training = PrivateTraining(first, sgd(first), small_plan(), seed=5, record=record)
    train(training, first, steps=2)
    state = training.state_dict()
    second = small_model()
    second.load_state_dict(first.state_dict())
    resumed = PrivateTraining(second, sgd(second), small_plan(), seed=5, record=record)
    resumed.load_state_dict(state)
    train(resumed, second)
    assert torch.equal(weights(second), weights(whole))


def test_nothing_is_drawn_when_the_record_cannot_be_written(path: Path) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), record=path)
    path.unlink()
    before = weights(model)
    with pytest.raises(StorageError, match="Nothing was drawn"):
        train(training, model)
    assert torch.equal(weights(model), before)
    assert training.steps_spent == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_fork_is_no_second_budget() -> None:
    account = StepAccount(small_plan(), None, "fast", None)
    assert refused_in_a_child(account.spend)
    account.spend()
    assert account.spent == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_fork_takes_no_step_with_an_open_lot() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())
    for inputs, targets in next(training.lots(small_data())).batches(8):
        training.accumulate(cross_entropy(model, inputs, targets))
    assert refused_in_a_child(training.step)
    training.step()


def refused_in_a_child(action: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        status = 1
        try:
            action()
        except InvalidParameterError:
            status = 3
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
