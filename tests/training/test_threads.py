"""Threads that share a training: no lot comes to two steps, and no record counts twice."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from matrixdp.training.trainable import Trainable
from torch import nn

from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.training import PrivateTraining
from matrixdp.training.account import StepAccount
from matrixdp.training.noise.step_noise import StepNoise
from training.small_training import cross_entropy, sgd, small_data, small_model, small_plan


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


def complete(training: PrivateTraining, model: nn.Module) -> None:
    for inputs, targets in next(training.lots(small_data())).batches(8):
        training.accumulate(cross_entropy(model, inputs, targets))


def test_two_threads_take_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    releases: list[int] = []
    drawn = StepNoise.noisy_means

    def counted(noise: StepNoise, matrices: Any, step: int, divisor: float) -> Iterator[Any]:
        releases.append(step)
        return drawn(noise, matrices, step, divisor)

    monkeypatch.setattr(StepNoise, "noisy_means", counted)
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())
    complete(training, model)
    let_meet(monkeypatch, Trainable, "check_unchanged")
    (error,) = at_once(training.step)
    assert "no lot is open" in str(error)
    assert len(releases) == training.steps_spent == 1


def test_two_threads_spend_no_step_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(steps=1))
    loops = [training.lots(small_data()) for _ in range(2)]
    lots: list[Any] = []
    let_meet(monkeypatch, StepAccount, "check_process")
    at_once(lambda: lots.append(next(loops.pop())))
    assert len(lots) == training.steps_spent == 1


def test_two_threads_get_the_batches_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())
    lot = next(training.lots(small_data()))
    let_meet(monkeypatch, Trainable, "check_unchanged")
    (error,) = at_once(lambda: lot.batches(8))
    assert isinstance(error, InvalidParameterError)
    assert "each record may count once" in str(error)
