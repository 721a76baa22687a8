"""Compiled code: how it rounds a record depends on the records before, so it never trains."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.model.compiled import uncompiled
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)


@pytest.fixture(autouse=True)
def nothing_stays_compiled() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, on a GPU
        torch._dynamo.reset()


Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]


def compiled_losses(calls: list[int]) -> Losses:
    """Return compiled losses that note when they do not run as they were written."""

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            calls.append(1)
            return graph(*arguments)

        return run

    compiled: Losses = torch.compile(cross_entropy, backend=backend)
    return compiled


def by_compile(model: nn.Module) -> nn.Module:
    compiled: Any = torch.compile(model, backend="eager")
    return cast("nn.Module", compiled)


def by_its_method(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def by_script(model: nn.Module) -> nn.Module:
    scripted: nn.Module = torch.jit.script(model)
    return scripted


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("compiled", [by_compile, by_its_method, by_script])
def test_compiled_models_are_refused(mode: Any, compiled: Callable[[nn.Module], nn.Module]) -> None:
    whole = compiled(small_model())
    with pytest.raises(InvalidParameterError, match="the model was compiled by"):
        private(whole, mode=mode)
    within = nn.Sequential(compiled(small_model()))
    with pytest.raises(InvalidParameterError, match="layer '0' was compiled by"):
        private(within, mode=mode)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("early", [True, False])
def test_compiled_functions_run_as_they_were_written(mode: Any, *, early: bool) -> None:
    calls: list[int] = []
    models = [small_model() for _ in range(2)]
    losses = compiled_losses(calls)
    if early:  # code that was made without anybody watching
        losses(models[0], *small_data())
    before = len(calls)
    for model, chosen in zip(models, (losses, cross_entropy), strict=True):
        options: Any = {"losses": partial(chosen, model), "seed": 1, "mode": mode}
        train(private(model, small_plan(steps=2), **options))
    assert len(calls) == before
    assert torch.equal(weights(models[0]), weights(models[1]))
    # Outside of a step it is compiled as before.
    losses(models[0], *small_data())
    assert len(calls) > before


def test_blocks_that_overlap() -> None:
    # As of two threads: the first one to be over must not let the other one's losses be compiled.
    calls: list[int] = []
    losses = compiled_losses(calls)
    model = small_model()
    with ExitStack() as first, ExitStack() as second:
        for blocks in (first, second):
            blocks.enter_context(uncompiled())
        for blocks, expected in ((first, 0), (second, 1)):
            losses(model, *small_data())
            assert not calls
            blocks.close()
            losses(model, *small_data())
            assert len(calls) == expected


def test_captured_steps_run_what_was_written() -> None:
    calls: list[int] = []
    model = small_model()
    training = private(model, losses=partial(compiled_losses(calls), model), seed=1)
    step = training.captured_step(small_data(), batch_size=16)
    step()
    assert not calls


def test_a_step_that_is_compiled() -> None:
    training = private(small_model(), small_plan(lot_size=40), mode="exact", seed=1)
    lot = next(training.lots(small_data()))

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        return graph.forward

    run: Callable[[], Any] = torch.compile(
        lambda: training.step(lot, batch_size=8), backend=backend
    )
    with pytest.raises(InvalidParameterError, match=r"within torch\.compile"):
        run()
