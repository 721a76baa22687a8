"""Reports of a training: its progress, a bar, its ``repr``, and how its gradients are formed."""

import re
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.privacy import SampledPlan, plan_epsilon
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)


def test_progress_by_step_and_epoch() -> None:
    training = private(small_model(), seed=1, mode="exact")
    found = [training.progress]
    for lot in training.lots(small_data()):
        training.step(lot, batch_size=8)
        found.append(training.progress)
    assert [one.steps_spent for one in found] == [0, 1, 2, 3, 4]
    assert [one.steps_left for one in found] == [4, 3, 2, 1, 0]
    assert [one.epochs_spent for one in found] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [one.epochs_left for one in found] == [1.0, 0.75, 0.5, 0.25, 0.0]
    # Four digits, the last of which depends on how wide the bounds of the account are.
    assert re.fullmatch(
        r"1 of 4 steps and 0\.25 of 1 epochs are spent; the whole plan costs epsilon 0\.786\d at "
        r"delta 0\.001",
        str(found[1]),
    )


def test_the_epsilon_so_far_is_that_of_a_plan_of_these_steps() -> None:
    training = private(small_model(), seed=1, mode="exact")
    assert training.progress.epsilon_spent == 0.0
    train(training, steps=3)
    fewer = SampledPlan(
        noise_multiplier=2.0, sampling_rate=0.25, steps=3, neighbouring="add-remove"
    )
    assert training.progress.epsilon_spent == plan_epsilon(fewer, 1e-3)
    assert training.progress.epsilon_spent == small_plan(steps=3).epsilon
    train(training)
    assert training.progress.epsilon_spent == training.plan.epsilon


def test_what_a_training_shows_of_itself() -> None:
    training = private(small_model(), mode="exact")
    next(training.lots(small_data()))
    assert repr(training) == (
        f"<PrivateTraining of Sequential, mode exact, exact noise: {training.progress}>"
    )
    assert "fast, simulated noise" in repr(private(small_model(), seed=1))


def test_a_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for progress in (False, True):
        model = small_model()
        training = private(model, seed=1, mode="exact")
        train(training, steps=1)  # the bar begins where the training is
        for lot in training.lots(small_data(), progress=progress):
            training.step(lot, batch_size=8)
        assert training.progress.steps_left == 0
        shown = capsys.readouterr().out
        assert ("private steps" in shown) is progress
        assert ("100%" in shown) is progress
        found.append(weights(model))
    assert torch.equal(found[0], found[1])


def test_a_bar_hides_no_mistake() -> None:
    training = private(small_model(), seed=1, mode="exact")
    lots = training.lots(small_data(), progress=True)
    next(lots)
    with pytest.raises(InvalidParameterError, match=r"training\.step\(lot\) was not called"):
        next(lots)


def explained(training: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    training.explain()
    lines: list[str] = capsys.readouterr().out.splitlines()
    return lines


def test_how_gradients_are_formed(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 8), nn.PReLU(8), nn.Tanh(), nn.Linear(8, 3))
    training = private(model, seed=1)
    with pytest.raises(InvalidParameterError, match="nothing was checked yet"):
        training.explain()
    training.check(small_data())
    header, *layers = explained(training, capsys)
    assert header.split() == ["layer", "kind", "rule"]
    assert [line.split()[:2] for line in layers] == [
        *(["0", "Linear"], ["1", "PReLU"], ["3", "Linear"]),
    ]
    assert "run again for every record" in layers[1]


class Direct(nn.Module):
    """Uses a weight without calling its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.layer(inputs)
        return hidden @ self.layer.weight @ self.layer.weight.T


def test_why_a_model_is_run_for_every_record(capsys: pytest.CaptureFixture[str]) -> None:
    training = private(Direct(), seed=1)
    with pytest.warns(UserWarning, match=r"the model is run .* training\.explain\(\) says why"):
        training.lots(small_data())
    _, line = explained(training, capsys)
    assert line.split()[0] == "Direct"
    assert "not layer by layer: the " in line


def test_the_mode_exact_has_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    training = private(small_model(), seed=1, mode="exact")
    training.check(small_data())
    (line,) = explained(training, capsys)
    assert line == "every record is run by itself, by plain autograd: mode exact"


def test_a_check_on_rows_of_ones_own_spends_nothing() -> None:
    """And the lots then check nothing more."""
    model = small_model()
    seen: list[Tensor] = []

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(inputs)
        return cross_entropy(model, inputs, targets)

    training = private(model, losses=losses, seed=1)
    before = weights(model)
    training.check(tuple(part[:8] for part in small_data()))
    assert seen
    seen.clear()
    training.lots(small_data())
    assert not seen
    assert torch.equal(weights(model), before)
    assert training.progress.steps_spent == 0
    with pytest.raises(ShapeError, match="rows makes 3 records: pass at least 4"):
        training.check(tuple(part[:3] for part in small_data()))
