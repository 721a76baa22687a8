"""Compiled code: how it rounds a record depends on the records before, so it never trains."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from training.small_training import (
    cross_entropy,
    sgd,
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
        PrivateTraining(whole, sgd(whole), small_plan(), mode=mode)
    within = nn.Sequential(compiled(small_model()))
    with pytest.raises(InvalidParameterError, match="layer '0' was compiled by"):
        PrivateTraining(within, sgd(within), small_plan(), mode=mode)


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
        training = PrivateTraining(model, sgd(model), small_plan(steps=2), seed=1, mode=mode)
        train(training, model, losses=chosen)
    assert len(calls) == before
    assert torch.equal(weights(models[0]), weights(models[1]))
    # Outside of the batches it is compiled as before.
    losses(models[0], *small_data())
    assert len(calls) > before


def test_batches_that_overlap() -> None:
    # The first one to be over must not let the other one's model be compiled.
    calls: list[int] = []
    losses = compiled_losses(calls)
    models = [small_model() for _ in range(2)]
    plan = small_plan(lot_size=40)
    batches = [
        next(PrivateTraining(model, sgd(model), plan, mode="exact").lots(small_data())).batches(1)
        for model in models
    ]
    for number in range(2):
        next(batches[number])
    for expected in (0, 0, 1):
        losses(models[1], *small_data())
        assert len(calls) == expected
        batches[:1] = []


def test_captured_steps_run_what_was_written() -> None:
    calls: list[int] = []
    model = small_model()
    losses = compiled_losses(calls)
    training = PrivateTraining(model, sgd(model), small_plan(), seed=1)
    step = training.captured_step(
        small_data(), lambda inputs, targets: losses(model, inputs, targets), batch_size=16
    )
    step()
    assert not calls


def test_a_loop_that_is_compiled() -> None:
    model = small_model()
    lot = next(PrivateTraining(model, sgd(model), small_plan(lot_size=40)).lots(small_data()))
    batches = lot.batches(8)

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        return graph.forward

    run: Callable[[], Any] = torch.compile(lambda: next(batches), backend=backend)
    with pytest.raises(InvalidParameterError, match=r"within torch\.compile"):
        run()
