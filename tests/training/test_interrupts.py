"""Ctrl-C at a bad moment: model, compiler and noise are afterwards what they were before."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from matrixdp.training.layer_call import LayerCall
from matrixdp.training.recording import Recording
from torch import nn
from torch.backends import mha
from torch.nn.modules import module as torch_module

from matrixdp.errors import InvalidParameterError
from matrixdp.noise import kernels
from matrixdp.training import PrivateTraining, noise
from training.small_training import cross_entropy, sgd, small_data, small_model, small_plan


def stance() -> str:
    return torch._dynamo.eval_frame._stance.stance


def interrupted_once(function: Callable[..., Any], *, late: bool) -> Callable[..., Any]:
    """Return a function whose first call is interrupted, before or after it did its work."""
    calls: list[int] = []

    def run(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return function(*arguments, **named)
        if late:
            function(*arguments, **named)
        raise KeyboardInterrupt

    return run


def one_batch(model: nn.Module) -> None:
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    for inputs, targets in next(training.lots(small_data())).batches(8):
        training.accumulate(cross_entropy(model, inputs, targets))


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (nn.Parameter, "requires_grad_"),
        (mha, "set_fastpath_enabled"),
        (LayerCall, "unfreeze"),
        (Recording, "stop"),
        (torch.utils.hooks.RemovableHandle, "remove"),
        (torch._dynamo.eval_frame, "_set_stance"),
    ],
)
def test_nothing_stays_behind(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, late: bool
) -> None:
    model, before = small_model(), stance()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted_once(getattr(owner, name), late=late))
        with pytest.raises(KeyboardInterrupt):
            one_batch(model)
    assert all(part.requires_grad for part in model.parameters())
    assert mha.get_fastpath_enabled()
    assert stance() == before
    assert not torch_module._global_forward_hooks
    assert not torch_module._global_forward_pre_hooks


def handed_out() -> tuple[PrivateTraining, nn.Module, Any, Any]:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    batches = next(training.lots(small_data())).batches(8)
    return training, model, batches, next(batches)


def test_a_stance_that_ends_while_a_batch_is_out() -> None:
    block = torch.compiler.set_stance("default")
    training, model, batches, batch = handed_out()
    block.__exit__(None, None, None)
    with pytest.raises(InvalidParameterError, match="became 'default' while a batch"):
        training.accumulate(cross_entropy(model, *batch))
    batches.close()
    assert stance() == "default"


def test_a_batch_that_ends_within_a_block_of_a_stance() -> None:
    training, model, batches, batch = handed_out()
    with torch.compiler.set_stance("eager_on_recompile"):
        with pytest.raises(InvalidParameterError, match="eager_on_recompile"):
            training.accumulate(cross_entropy(model, *batch))
        batches.close()
        assert stance() == "eager_on_recompile"
    assert stance() == "default"


def test_a_stance_around_the_loop() -> None:
    with torch.compiler.set_stance("eager_on_recompile"):
        one_batch(small_model())
        assert stance() == "eager_on_recompile"
    assert stance() == "default"


def test_batches_that_are_open_when_the_interpreter_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, batches, _ = handed_out()
    with monkeypatch.context() as exiting:
        exiting.setattr(sys, "meta_path", None)
        batches.close()
    assert stance() == "default"


def test_noise_is_compiled_before_a_step_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(noise, "prepare_fastest", prepared.append)
    model = small_model()
    PrivateTraining(model, sgd(model), small_plan(), seed=1)
    assert prepared == []
    PrivateTraining(model, sgd(model), small_plan())
    assert prepared == [8]


def test_half_of_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise AttributeError(f"partially initialized module {name!r}")

    monkeypatch.setattr(importlib, "import_module", fail)
    assert not kernels._numba_works()
