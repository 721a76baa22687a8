"""Steps hardly ever wait for the device: what is launched meanwhile would come too late.

A step with simulated noise waits for one event, which comes before its sum: whether the weights
are finite.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import nn, optim
from torch.utils._python_dispatch import TorchDispatchMode

from matrixdp.training.lots import fast_sum
from training.captured_training import captured, made
from training.small_training import RECORDS, small_data

WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "is_nonzero")


class Waiting(TorchDispatchMode):
    """Counts the operations that wait for a GPU, wherever they run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        if any(part in function.name() for part in WAITS):
            self.found.append(function.name())
        return function(*arguments, **(named or {}))


def steps(device: str, way: str, **options: Any) -> Callable[[], None]:
    """Return what takes a step, warm."""
    model, training = made(device, lot_size=20, steps=20, **options)
    data = tuple(part.to(device) for part in small_data())
    if way == "captured":
        take = captured(model, training, data=data, size=RECORDS)
    else:
        lots = training.lots(data)

        def take() -> None:
            training.step(next(lots), batch_size=RECORDS)

    # Every size is met, and memory is taken.
    for _ in range(15):
        take()
    return take


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters())


def test_a_step_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_sum, "prepares_for_sizes", lambda _device: True)
    take = steps("cpu", "loop")
    with Waiting() as waiting:
        take()
    # That one looks for records to leave out, on a CPU only.
    assert len(waiting.found) <= 1


def test_a_captured_step() -> None:
    take = steps("cpu", "captured")
    with Waiting() as waiting:
        take()
    assert not waiting.found


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", ["loop", "captured"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"views": 2}, {"sum_norm": 5.0}, {"make": adam}],
    ids="".join,
)
def test_on_a_gpu(way: str, changes: dict[str, Any]) -> None:
    take = steps("cuda", way, **changes)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(3):
                take()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in caught if "called a synchronizing" in str(one.message)]
    where = {f"{one.filename}:{one.lineno}" for one in waits}
    assert not waits, where
