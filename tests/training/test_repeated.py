"""Trainings that use the same records again: a warning says what all of them cost together."""

import gc
import math
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from matrixdp.privacy import privacy_epsilon
from matrixdp.training import PrivateTraining, RepeatedTrainingWarning, TrainingPlan
from matrixdp.training.checks.repeated import Release, warn_if_repeated
from training.small_training import (
    RECORDS,
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
)


def quietly(training: PrivateTraining, data: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedTrainingWarning)
        train(training, data=data, **options)


def test_a_cell_that_is_run_five_times() -> None:
    """Without sampling the five are one Gaussian mechanism, whose curve is known."""
    data = small_data()
    plan = small_plan(lot_size=RECORDS, steps=2)
    for _ in range(4):
        quietly(private(small_model(), plan), data)
    exact = privacy_epsilon(math.sqrt(5 * plan.steps) / plan.noise_multiplier, plan.delta)
    with pytest.warns(RepeatedTrainingWarning, match="training number 5 in this process") as caught:
        private(small_model(), plan).lots(data)
    (warning,) = caught
    together = float(str(warning.message).split("all together is (")[1].split(",")[0])
    assert exact <= together < 1.001 * exact
    assert together > 2 * plan.epsilon
    assert warning.filename == __file__  # the line of the user's own


def test_the_figure_of_five_trainings_of_one_each() -> None:
    plan = TrainingPlan(
        records=1000, lot_size=100, steps=65, clip_norm=1.0, epsilon=1.0, delta=1e-4
    )
    data = object.__new__(Data)
    for run in "abcd":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepeatedTrainingWarning)
            warn_if_repeated(Release(run, plan, lambda: plan.steps), [data])
    with pytest.warns(RepeatedTrainingWarning, match=r"all together is \(2\.41\d, 0\.0001\)"):
        warn_if_repeated(Release("e", plan, lambda: 0), [data])


def test_steps_that_were_not_taken_do_not_count() -> None:
    data = small_data()
    plan = small_plan(lot_size=RECORDS, steps=9)
    private(small_model(), plan).lots(data)  # nothing was spent
    quietly(private(small_model(), plan), data, steps=3)
    with pytest.warns(RepeatedTrainingWarning, match="training number 2 ") as caught:
        private(small_model(), plan).lots(data)
    exact = privacy_epsilon(math.sqrt(12) / plan.noise_multiplier, plan.delta)
    together = float(str(caught[0].message).split("all together is (")[1].split(",")[0])
    assert exact <= together < 1.001 * exact


class Data(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self) -> None:
        self.inputs, self.targets = small_data()

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.inputs[number], self.targets[number]


def same_tensors(data: Any) -> Any:
    return (data.inputs, data.targets)


def new_data_set(data: Any) -> Any:
    return TensorDataset(data.inputs.clone(), data.targets)


def same_data_set(data: Any) -> Any:
    return data


@pytest.mark.parametrize("given", [same_tensors, new_data_set, same_data_set])
def test_data_that_are_used_again(given: Callable[[Any], Any]) -> None:
    data = Data()
    quietly(private(small_model(), mode="exact"), given(data), steps=1)
    with pytest.warns(RepeatedTrainingWarning):
        private(small_model(), mode="exact").lots(given(data))


def test_captured_steps_on_data_that_are_used_again() -> None:
    data = small_data()
    private(small_model()).captured_step(data, batch_size=8)()
    with pytest.warns(RepeatedTrainingWarning) as caught:
        private(small_model()).captured_step(data, batch_size=8)
    assert caught[0].filename == __file__


def test_parameters_that_are_used_again() -> None:
    model = small_model()
    quietly(private(model, mode="exact"), small_data(), steps=1)
    with pytest.warns(RepeatedTrainingWarning):
        private(model, mode="exact").lots(small_data())


def test_no_warning() -> None:
    data, model = small_data(), small_model()
    training = private(model, mode="exact")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(training, steps=1, data=data)
        train(training, steps=1, data=data)  # the same training goes on
        for _ in range(2):
            train(private(model, seed=1, mode="exact"), data=data)  # experiments spend nothing
        train(private(small_model(), mode="exact"), data=small_data())  # of its own records
    assert caught == []


def test_a_run_that_is_resumed_is_no_other_training(tmp_path: Any) -> None:
    data, model = small_data(), small_model()
    options: dict[str, Any] = {"spending": tmp_path / "steps.spent", "mode": "exact"}
    training = private(model, **options)
    train(training, steps=2, data=data)
    resumed = private(model, **options)
    resumed.load_state_dict(training.state_dict())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(resumed, data=data)
    assert caught == []
    assert resumed.progress.steps_left == 0


def test_nothing_is_kept_alive() -> None:
    """A notebook that makes models and data again and again does not fill the memory."""
    data, model = small_data(), small_model()
    training = private(model, losses=partial(cross_entropy, model))
    train(training, steps=1, data=data)
    held = [weakref.ref(one) for one in (model, *model.parameters(), *data, training)]
    del data, model, training
    gc.collect()
    assert [one() for one in held] == [None] * len(held)


def test_lists_cannot_be_known_again() -> None:
    items = list(zip(*small_data(), strict=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            train(private(small_model(), mode="exact"), steps=1, data=items)
    assert caught == []


def halves_of_tensors(first: range, second: range) -> list[Any]:
    inputs, targets = (part.repeat(2, *[1] * (part.ndim - 1)) for part in small_data())
    return [(inputs[n.start : n.stop], targets[n.start : n.stop]) for n in (first, second)]


def halves_of_a_data_set(first: range, second: range) -> list[Any]:
    whole = TensorDataset(*(part.repeat(2, *[1] * (part.ndim - 1)) for part in small_data()))
    inside = Subset(whole, range(2 * RECORDS - 1, -1, -1))
    return [Subset(inside, numbers) for numbers in (first, second)]


@pytest.mark.parametrize("halves", [halves_of_tensors, halves_of_a_data_set])
@pytest.mark.parametrize("common", [0, 1])
def test_parts_of_one_data_set(halves: Callable[[range, range], list[Any]], common: int) -> None:
    second = range(RECORDS - common, 2 * RECORDS - common)
    earlier, later = halves(range(RECORDS), second)
    train(private(small_model(), mode="exact"), steps=1, data=earlier)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        private(small_model(), mode="exact").lots(later)
    assert len(caught) == common
