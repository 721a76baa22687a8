"""Ctrl-C at a bad moment: model, compiler and noise are afterwards what they were before."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import nn
from torch.backends import cudnn, mha
from torch.nn.modules import module as torch_module

from matrixdp.noise import kernels
from matrixdp.training import PrivateTraining
from matrixdp.training.layers.tracing import Tracer
from matrixdp.training.noise import block_noise
from training.small_training import private, small_data, small_model, train, weights

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def stance() -> str:
    return torch._dynamo.eval_frame._stance.stance


def settings() -> list[Any]:
    """Return what a step changes for its own time, in the whole process."""
    hooks = [torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks]
    return [
        *(stance(), mha.get_fastpath_enabled(), cudnn.enabled, cudnn.benchmark),
        *(torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")),
        *(torch.get_float32_matmul_precision(), list(map(dict, hooks))),
    ]


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


def model_with_all_kinds() -> nn.Module:
    """Return a model with a rule of its own, a layer without one, and corrected gradients."""
    torch.manual_seed(5)
    return nn.Sequential(
        *(nn.Linear(6, 8), nn.PReLU(8), nn.Unflatten(1, (2, 2, 2))),
        *(nn.InstanceNorm2d(2), nn.Flatten(), nn.Linear(8, 3)),
    )


def check_untouched(model: nn.Module, training: PrivateTraining) -> None:
    assert all(part.requires_grad and part.grad is None for part in model.parameters())
    assert not any(vars(one)[name] for one in model.modules() for name in _HOOKS)
    assert training.progress.steps_spent == 1


PLACES: list[tuple[Any, str, bool]] = [
    *((Tracer, "uses", late) for late in (False, True)),
    *((mha, "set_fastpath_enabled", late) for late in (False, True)),
    *((nn.Module, "register_forward_hook", late) for late in (False, True)),
    *((torch.utils.hooks.RemovableHandle, "remove", late) for late in (False, True)),
    (torch._dynamo.decorators, "_set_stance", False),
]


@pytest.mark.parametrize(("owner", "name", "late"), PLACES)
def test_nothing_stays_behind(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, late: Any
) -> None:
    models = [model_with_all_kinds() for _ in range(2)]
    first, second = (private(model, seed=1) for model in models)
    lot = next(first.lots(small_data()))
    before = settings()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted_once(getattr(owner, name), late=late))
        with pytest.raises(KeyboardInterrupt):
            first.step(lot, batch_size=8)
    assert settings() == before
    check_untouched(models[0], first)
    first.step(lot, batch_size=8)
    train(second, steps=1)
    assert torch.equal(weights(models[0]), weights(models[1]))


@pytest.mark.parametrize(("owner", "name", "late"), PLACES)
def test_nothing_stays_behind_after_a_check(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, late: Any
) -> None:
    model = model_with_all_kinds()
    training = private(model, seed=1)
    before, drawn = settings(), torch.random.get_rng_state()
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, interrupted_once(getattr(owner, name), late=late))
        with pytest.raises(KeyboardInterrupt):
            training.lots(small_data())
    assert settings() == before
    assert torch.equal(torch.random.get_rng_state(), drawn)
    train(training, steps=1)
    check_untouched(model, training)


def test_a_stance_around_the_loop() -> None:
    with torch.compiler.set_stance("eager_on_recompile"):
        train(private(small_model(), seed=1), steps=1)
        assert stance() == "eager_on_recompile"
    assert stance() == "default"


def test_noise_is_compiled_before_a_step_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(block_noise, "prepare_fastest", prepared.append)
    private(small_model(), seed=1)
    assert prepared == []
    private(small_model())
    assert prepared == [8]


def test_half_of_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise AttributeError(f"partially initialized module {name!r}")

    monkeypatch.setattr(importlib, "import_module", fail)
    assert not kernels._numba_works()
