"""Threads that share a training or a model: no lot comes to two steps, no record counts twice."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor

from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.training.account import StepAccount
from matrixdp.training.model.trainable import Trainable
from matrixdp.training.noise.step_noise import StepNoise
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)


def at_once(action: Callable[[], Any]) -> list[Exception]:
    """Run something in two threads, and return what they raised."""
    raised: list[Exception] = []

    def run() -> None:
        try:
            action()
        except MatrixDPError as error:
            raised.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def let_meet(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    """Let both threads be within a check at the same time, if nothing keeps one of them out."""
    meeting = threading.Barrier(2)
    check = getattr(kind, name)

    def slow(checked: object) -> None:
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.1)
        check(checked)

    monkeypatch.setattr(kind, name, slow)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_two_threads_take_one_step(monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    releases: list[int] = []
    drawn = StepNoise.noisy_means

    def counted(noise: StepNoise, matrices: Any, step: int, divisor: float) -> list[Any]:
        releases.append(step)
        return drawn(noise, matrices, step, divisor)

    monkeypatch.setattr(StepNoise, "noisy_means", counted)
    training = private(small_model(), mode=mode)
    lot = next(training.lots(small_data()))
    let_meet(monkeypatch, Trainable, "check_unchanged")
    (error,) = at_once(lambda: training.step(lot, batch_size=8))
    assert isinstance(error, InvalidParameterError)
    assert "this lot was taken already" in str(error)
    assert len(releases) == training.progress.steps_spent == 1


def test_two_threads_spend_no_step_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    training = private(small_model(), small_plan(steps=1), mode="exact")
    loops = [training.lots(small_data()) for _ in range(2)]
    lots: list[Any] = []
    let_meet(monkeypatch, StepAccount, "check_process")
    at_once(lambda: lots.append(next(loops.pop())))
    assert len(lots) == training.progress.steps_spent == 1


def test_another_thread_runs_the_model() -> None:
    """Neither its outputs nor its own gradients get into those of the step."""
    models = [small_model() for _ in range(2)]
    stepping, entered, released, finished = (threading.Event() for _ in range(4))

    def beside() -> None:
        outputs = models[0](torch.ones(1, 6))
        entered.set()
        released.wait(10.0)
        outputs.sum().backward()  # while the backward pass of the step runs
        finished.set()

    other = threading.Thread(target=beside)

    def interleave(*_: Any) -> None:
        # While the step is within its first layer.
        if stepping.is_set() and threading.current_thread() is not other:
            stepping.clear()
            other.start()
            entered.wait(10.0)

    # A hook that stays: a layer must not change between its call and its gradient.
    next(models[0].children()).register_forward_pre_hook(interleave)

    def let_it_go(_: Tensor) -> None:
        if other.is_alive():
            released.set()
            finished.wait(10.0)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(models[0], inputs, targets)
        found.register_hook(let_it_go)
        return found

    first, second = private(models[0], losses=losses, seed=3), private(models[1], seed=3)
    lot = next(first.lots(small_data()))
    stepping.set()
    first.step(lot, batch_size=40)
    other.join()
    assert finished.is_set()
    train(second, steps=1, size=40)
    assert torch.equal(weights(models[0]), weights(models[1]))
