"""Every lot that is drawn counts, and every record counts once, also after interruptions."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)


def test_two_loops_that_take_turns() -> None:
    training = private(small_model(), mode="exact")
    first, second = training.lots(small_data()), training.lots(small_data())
    for drawn, lots in enumerate((first, second, first, second)):
        next(lots)
        assert training.progress.steps_spent == drawn + 1  # the lot that is open counts


def test_a_lot_that_is_open_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    training = private(small_model(), spending=tmp_path / "steps.spent", mode="exact")
    state = training.state_dict()
    lot = next(training.lots(small_data()))
    training.load_state_dict(state)
    assert training.progress.steps_spent == 1
    with pytest.raises(InvalidParameterError, match="was given up"):
        training.step(lot, batch_size=8)


def test_an_experiment_forgets_the_open_lot_when_a_checkpoint_is_loaded() -> None:
    training = private(small_model(), seed=3, mode="exact")
    state = training.state_dict()
    lot = next(training.lots(small_data()))
    training.load_state_dict(state)
    assert training.progress.steps_spent == 0  # the same lot is drawn again
    with pytest.raises(InvalidParameterError, match="was given up"):
        training.step(lot, batch_size=8)


def test_a_lot_that_was_given_up_counts() -> None:
    # Whether a lot is given up may depend on its records; drawing again for free would select lots.
    training = private(small_model(), small_plan(steps=3), mode="exact")
    for spent in range(3):
        assert training.progress.steps_spent == spent
        next(training.lots(small_data()))
    assert training.progress.steps_left == 0
    with pytest.raises(BudgetExceededError):
        training.lots(small_data())


def test_a_lot_is_taken_once_and_by_its_own_training() -> None:
    model = small_model()
    training, other = (private(model, seed=seed, mode="exact") for seed in (1, 2))
    lots = training.lots(small_data())
    given_up = next(lots)
    lot = next(training.lots(small_data()))
    foreign = next(other.lots(small_data()))
    before = weights(model)
    for wrong in (given_up, foreign, None):
        with pytest.raises(InvalidParameterError, match=r"taken already.*or belongs to another"):
            training.step(wrong, batch_size=8)  # type: ignore[arg-type]
    assert torch.equal(weights(model), before)
    training.step(lot, batch_size=8)
    after = weights(model)
    with pytest.raises(InvalidParameterError, match="this lot was taken already"):
        training.step(lot, batch_size=8)
    assert torch.equal(weights(model), after)


def test_a_loop_that_leaves_a_lot_out() -> None:
    training = private(small_model(), seed=1, mode="exact")
    lots = training.lots(small_data())
    next(lots)
    with pytest.raises(InvalidParameterError, match=r"training\.step\(lot\) was not called"):
        next(lots)
    assert training.progress.steps_spent == 1


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_lot_whose_step_was_interrupted_is_trained_from_its_beginning(
    mode: Any, number: int
) -> None:
    """No record counts twice: not those of batches that were added up before."""
    models = [small_model() for _ in range(2)]
    calls_left: list[None] = []

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        if calls_left:
            calls_left.pop()
            if not calls_left:
                raise KeyboardInterrupt
        return cross_entropy(models[0], inputs, targets)

    plan = small_plan(lot_size=20)
    interrupted = private(models[0], plan, losses=losses, seed=3, mode=mode)
    lot = next(interrupted.lots(small_data()))
    calls_left += [None] * number
    with pytest.raises(KeyboardInterrupt):
        interrupted.step(lot, batch_size=4)
    assert torch.equal(weights(models[0]), weights(models[1]))
    interrupted.step(lot, batch_size=4)
    train(private(models[1], plan, seed=3, mode=mode), steps=1, size=4)
    assert torch.equal(weights(models[0]), weights(models[1]))
    assert interrupted.progress.steps_spent == 1
