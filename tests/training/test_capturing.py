"""Faults of CUDA graphs: work that waits for the GPU, and numbers that stay the same."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from training.small_training import RECORDS, private, small_model, small_plan, train, weights

SEED = 11


class NoWaiting(TorchDispatchMode):
    """Raises where a GPU would be waited for, which a graph cannot do."""

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        name = function.name()
        waits = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "is_nonzero")
        assert not any(part in name for part in waits), name
        return function(*arguments, **(named or {}))


class Last(nn.Module):
    """An LSTM's last output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.layer(inputs.reshape(-1, 2, 3))[0][:, -1]
        return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(6, 3),
        lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 4), nn.Dropout(), nn.Flatten()),
        lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2), nn.GroupNorm(2, 4)),
        lambda: nn.Sequential(nn.LayerNorm(6), nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 9, 2)),
        Last,
        lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1, affine=True)),
        lambda: nn.Embedding(9, 4, padding_idx=0),
        lambda: nn.RMSNorm(6),
    ],
)
def test_nothing_waits_within_a_batch(make: Callable[[], nn.Module]) -> None:
    model = make()
    tokens = isinstance(model, nn.Embedding)
    data = torch.randint(0, 9, (RECORDS, 6)) if tokens else torch.randn(RECORDS, 6)

    def losses(rows: Tensor) -> Tensor:
        made: Tensor = model(rows)
        return made.flatten(1).square().sum(1)

    training = private(model, losses=losses, seed=SEED)
    training.captured_step(data, batch_size=8)  # checked, which may wait
    # Raises at any operation that would wait. The trial run spends nothing.
    with NoWaiting():  # type: ignore[no-untyped-call]
        training.captured_step(data, batch_size=8)
    assert training.progress.steps_spent == 0


_WAITS_FOR_THE_GPU = """
import torch
from matrixdp.training import PrivateTraining, TrainingPlan
model = torch.nn.Linear(6, 3, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
plan = TrainingPlan(
    records=40, lot_size=10, steps=4, clip_norm=0.5, noise_multiplier=2.0, delta=1e-3
)
losses = lambda rows: model(rows).sum(1) + 0.0 * rows.sum().item()
training = PrivateTraining(model, losses, optimizer, plan, seed=1)
training.captured_step(torch.randn(40, 6, device="cuda"), batch_size=8)
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnAGpu:
    """What capturing itself can get wrong."""

    def test_random_layers_are_random_in_every_step(self) -> None:
        inputs = torch.ones(RECORDS, 6, device="cuda")
        seen = torch.zeros(RECORDS, device="cuda")
        model = small_model().to("cuda")

        def losses(rows: Tensor) -> Tensor:
            dropped = nn.functional.dropout(rows, 0.5)
            seen[: len(rows)].copy_(dropped.detach().sum(1))  # a trial has fewer rows
            return model(dropped).square().sum(1)

        training = private(model, small_plan(lot_size=40), losses=losses, seed=SEED)
        step = training.captured_step(inputs, batch_size=RECORDS)
        step()
        first = seen.clone()
        step()
        assert not torch.equal(first, seen)

    def test_what_waits_for_the_gpu_is_refused(self) -> None:
        # In a process of its own, since torch does not always recover from a failed capture.
        ended = subprocess.run(
            [sys.executable, "-c", _WAITS_FOR_THE_GPU], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 1
        assert "cannot be captured as a CUDA graph" in ended.stderr

    @pytest.mark.parametrize(
        "make",
        [
            lambda: nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3)),
            lambda: nn.Sequential(
                *(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.GroupNorm(2, 4), nn.Flatten()),
                nn.Linear(8, 3),
            ),
        ],
    )
    def test_layers(self, make: Callable[[], nn.Module]) -> None:
        data = torch.randint(0, 9, (RECORDS, 3), device="cuda")
        found = []
        for way in ("loop", "captured"):
            torch.manual_seed(3)
            model = make().to("cuda")
            embedded = isinstance(next(model.children()), nn.Embedding)

            def losses(rows: Tensor, model: nn.Module = model, *, as_is: bool = embedded) -> Tensor:
                made: Tensor = model(rows if as_is else rows.float())
                return made.square().sum(1)

            training = private(model, losses=losses, seed=SEED)
            if way == "captured":
                step = training.captured_step(data, batch_size=16)
                while training.progress.steps_left:
                    step()
            else:
                train(training, size=16, data=data)
            found.append(weights(model))
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
