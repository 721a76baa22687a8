"""Steps that were spent stay spent: after a kill, a resume, a fork, another checkpoint."""

import os
from collections.abc import Callable, Sequence
from functools import partial
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
from matrixdp.training.noise.step_noise import StepNoise
from training.small_training import (
    private,
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
    for options in ({"spending": path}, {"seed": 1}):
        training = private(model, **options)
        with pytest.raises(InvalidParameterError, match="is a NoneType"):
            training.load_state_dict(nothing)
        for spent in ("3", None, True, 1.5, -5, 99):
            with pytest.raises(InvalidParameterError, match=r"steps_spent=.* from 0 to steps=4"):
                training.load_state_dict(training.state_dict() | {"steps_spent": spent})


class Killed(BaseException):
    """What no code may catch: the process ends here."""


def test_a_kill_between_the_count_and_the_draw(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = StepNoise.noisy_means

    def killed(
        noise: StepNoise, matrices: Sequence[Tensor], step: int, divisor: float
    ) -> list[tuple[nn.Parameter, Tensor]]:
        if step == 1:
            raise Killed
        return drawn(noise, matrices, step, divisor)

    before_the_draw = private(small_model(), spending=path)
    with monkeypatch.context() as patched:
        patched.setattr(StepNoise, "noisy_means", killed)
        with pytest.raises(Killed):
            train(before_the_draw)
    training = private(small_model(), spending=path, restart=True)
    assert (training.progress.steps_spent, training.progress.steps_left) == (2, 2)
    train(training)
    with pytest.raises(BudgetExceededError):
        training.lots(small_data())


def test_resuming_from_an_older_checkpoint(path: Path) -> None:
    model = small_model()
    training = private(model, small_plan(steps=7), spending=path)
    train(training, steps=2)
    checkpoint = {"model": model.state_dict(), "training": training.state_dict()}
    train(training, steps=3)
    assert training.progress.steps_spent == 5
    for spent in (5, 6):  # twice
        model = small_model()
        training = private(model, small_plan(steps=7), spending=path)
        model.load_state_dict(checkpoint["model"])
        training.load_state_dict(checkpoint["training"])
        assert (training.progress.steps_spent, training.progress.steps_left) == (spent, 7 - spent)
        train(training, steps=1)
    assert training.progress.steps_left == 0


def test_without_a_checkpoint_steps_stay_spent(path: Path) -> None:
    model = small_model()
    train(private(model, spending=path), steps=3)
    assert private(model, spending=path).progress.steps_left == 1
    with pytest.raises(InvalidParameterError, match="another plan"):
        private(model, small_plan(steps=9), spending=path)
    with pytest.raises(InvalidParameterError, match="mode or seed"):
        private(model, spending=path, seed=1)


def first_step_of_loop(training: PrivateTraining) -> None:
    train(training, steps=1)


def first_captured_step(training: PrivateTraining) -> None:
    training.captured_step(small_data(), batch_size=8)()


WAYS = [first_step_of_loop, first_captured_step]


@pytest.mark.parametrize("first_step", WAYS)
def test_a_fresh_model_trains_on_the_steps_that_are_left_only_if_asked_for(
    path: Path, first_step: Callable[[PrivateTraining], None]
) -> None:
    train(private(small_model(), spending=path), steps=3)
    model = small_model()
    forgotten = private(model, spending=path)
    before = weights(model)
    with pytest.raises(InvalidParameterError, match=r"counts 3 steps .* pass restart=True"):
        first_step(forgotten)
    assert torch.equal(weights(model), before)
    assert forgotten.progress.steps_spent == 3
    fresh = private(model, spending=path, restart=True)
    first_step(fresh)
    assert not torch.equal(weights(model), before)
    assert fresh.progress.steps_spent == private(model, spending=path).progress.steps_spent == 4
    # No step comes back.
    with pytest.raises(BudgetExceededError, match="all steps=4"):
        first_step(private(model, spending=path, restart=True))


def test_a_new_spending_file_needs_no_restart(path: Path) -> None:
    training = private(small_model(), spending=path, restart=True)
    train(training)
    assert training.progress.steps_left == 0


@pytest.mark.parametrize("seed", [None, 5])
def test_a_finished_run_that_is_resumed_ends_quietly(path: Path, seed: int | None) -> None:
    model = small_model()
    training = private(model, spending=path, seed=seed)
    train(training)
    state = training.state_dict()
    after = weights(model)
    resumed = private(model, spending=path, seed=seed)
    resumed.load_state_dict(state)
    assert list(resumed.lots(small_data())) == []
    assert list(resumed.lots(small_data())) == []
    step = resumed.captured_step(small_data(), batch_size=8)
    with pytest.raises(BudgetExceededError, match="all steps=4"):
        step()
    assert torch.equal(weights(model), after)
    assert resumed.progress.steps_spent == 4


def test_a_run_that_was_resumed_before_its_end_is_no_finished_one(path: Path) -> None:
    training = private(small_model(), spending=path)
    train(training, steps=3)
    resumed = private(small_model(), spending=path)
    resumed.load_state_dict(training.state_dict())
    train(resumed)
    with pytest.raises(BudgetExceededError, match="all steps=4"):
        resumed.lots(small_data())


def test_a_run_keeps_its_mode(path: Path) -> None:
    # The guarantee of the mode exact is about all steps of the plan.
    model = small_model()
    fast = private(model, spending=path)
    train(fast, steps=3)
    with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or seed"):
        private(model, spending=path, mode="exact")
    experiment = private(model, seed=1)
    exact = private(model, seed=1, mode="exact")
    with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or seed"):
        exact.load_state_dict(experiment.state_dict())


def test_a_lot_counts_as_soon_as_it_is_drawn(path: Path) -> None:
    # A crash may depend on the lot. Were such lots drawn anew for free, those that are used would
    # be no Poisson samples any more.
    model = small_model()
    for spent in range(2):
        training = private(model, spending=path, restart=True)
        assert training.progress.steps_spent == spent
        next(training.lots(small_data()))
        del training
    assert private(model, spending=path).progress.steps_left == 2


def test_checkpoints_that_do_not_belong_to_the_file(path: Path) -> None:
    model = small_model()
    training = private(model, spending=path)
    train(training, steps=1)
    early = path.read_bytes()
    train(training, steps=1)
    state = training.state_dict()
    # The file of an earlier time was put back.
    path.write_bytes(early)
    older = private(model, spending=path)
    with pytest.raises(InvalidParameterError, match="lost steps"):
        older.load_state_dict(state)
    # The file of another run of the same plan.
    other = private(small_model(), spending=path.with_name("other"))
    train(other, steps=3)
    with pytest.raises(InvalidParameterError, match="does not belong to this spending file"):
        other.load_state_dict(state)
    without = private(model)
    with pytest.raises(InvalidParameterError, match="spending=path"):
        without.load_state_dict(without.state_dict())
    for wrong in ({}, state | {"plan": "x"}, state | {"seed": 3}, state | {"mode": "exact"}):
        with pytest.raises(InvalidParameterError, match="another plan, mode or seed"):
            training.load_state_dict(wrong)


@pytest.mark.parametrize("counted", [True, False])
def test_an_experiment_continues_as_if_nothing_had_happened(path: Path, *, counted: bool) -> None:
    whole = small_model()
    train(private(whole, seed=5))
    spending = path if counted else None
    first = small_model()
    training = private(first, seed=5, spending=spending)
    train(training, steps=2)
    state = training.state_dict()
    second = small_model()
    second.load_state_dict(first.state_dict())
    resumed = private(second, seed=5, spending=spending)
    resumed.load_state_dict(state)
    train(resumed)
    assert torch.equal(weights(second), weights(whole))


def test_nothing_is_drawn_when_the_file_cannot_be_written(path: Path) -> None:
    model = small_model()
    training = private(model, spending=path)
    path.unlink()
    before = weights(model)
    with pytest.raises(StorageError, match="Nothing was drawn"):
        train(training)
    assert torch.equal(weights(model), before)
    assert training.progress.steps_spent == 0


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
    training = private(small_model())
    lot = next(training.lots(small_data()))
    assert refused_in_a_child(partial(training.step, lot, batch_size=8))
    training.step(lot, batch_size=8)


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
