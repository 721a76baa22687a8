"""Every lot that is drawn counts, and every record counts once, also after interruptions."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from matrixdp.training.lots.exact_sum import Quantiser
from training.small_training import cross_entropy, sgd, small_data, small_model, small_plan


def test_two_loops_that_take_turns() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())
    first, second = training.lots(small_data()), training.lots(small_data())
    for drawn, lots in enumerate((first, second, first, second)):
        next(lots)
        assert training.steps_spent == drawn + 1  # the lot that is open counts


def test_a_lot_that_is_open_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), record=tmp_path / "steps.spent")
    state = training.state_dict()
    next(training.lots(small_data()))
    training.load_state_dict(state)
    assert training.steps_spent == 1


def test_an_experiment_forgets_the_open_lot_when_a_checkpoint_is_loaded() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), seed=3)
    state = training.state_dict()
    next(training.lots(small_data()))
    training.load_state_dict(state)
    assert training.steps_spent == 0  # the same lot is drawn again


def test_a_record_whose_accumulation_was_interrupted_is_not_added_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small_model()
    plan = small_plan(lot_size=40, clip_norm={"0": 0.5, "": 0.5})
    training = PrivateTraining(model, sgd(model), plan, mode="exact")
    ordinary = Quantiser.__call__
    calls = []

    def interrupted(self: Quantiser, gradients: Any) -> tuple[list[Tensor], Tensor]:
        calls.append(1)
        if len(calls) == 2:  # the first group was added already
            raise KeyboardInterrupt
        return ordinary(self, gradients)

    lot = next(training.lots(small_data()))
    monkeypatch.setattr(Quantiser, "__call__", interrupted)
    batches = lot.batches(1)
    inputs, targets = next(batches)
    with pytest.raises(KeyboardInterrupt):
        training.accumulate(cross_entropy(model, inputs, targets))
    with pytest.raises(InvalidParameterError, match="no batch whose losses these are"):
        training.accumulate(cross_entropy(model, inputs, targets))
    for rest, labels in batches:
        training.accumulate(cross_entropy(model, rest, labels))
    with pytest.raises(InvalidParameterError, match="the lot is not complete"):
        training.step()
    assert torch.equal(next(model.parameters()), next(small_model().parameters()))


@pytest.mark.parametrize("begun", [True, False])
def test_a_lot_that_was_given_up_hands_out_nothing_more(*, begun: bool) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40))
    lot = next(training.lots(small_data()))
    batches = lot.batches(8)
    if begun:
        next(batches)
    later = next(training.lots(small_data())).batches(8)
    inputs, targets = next(later)
    # Its records could be taken for those of the new lot, where each may count once only.
    with pytest.raises(InvalidParameterError, match="this lot was given up"):
        next(batches)
    training.accumulate(cross_entropy(model, inputs, targets))
