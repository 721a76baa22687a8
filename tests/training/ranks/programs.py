"""Programs that all ranks of a test run; each returns what its rank has found."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim

from matrixdp.training import PrivateTraining, Units
from matrixdp.training.noise.block_noise import BlockNoise, ExactNoise, SimulatedNoise
from matrixdp.training.spending import SpendingFile
from training.ranks.refusals import Found, refused, shapes
from training.small_training import (
    RECORDS,
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

GROUPS = {"0": 0.4, "": 0.7}


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), lr=0.01)


def zero(model: nn.Module) -> optim.Optimizer:
    # Late, since importing it warns and takes a second.
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415

    return ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=optim.Adam, process_group=dist.group.WORLD, lr=0.01
    )


def trained(group: Any = None, **options: Any) -> Tensor:
    """Return the weights of a small model after all steps."""
    model = small_model()
    train(private(model, seed=3, ranks=group, **options))
    return weights(model)


def with_zero(group: Any) -> Tensor:
    """Return the weights after two steps by ZeRO-1, a checkpoint, and the other two."""
    model = small_model()
    training, optimizer = training_with_zero(model, group)
    train(training, steps=2)
    optimizer.consolidate_state_dict(0)  # all ranks take part, and the first one gets it
    states = [optimizer.state_dict() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(states, 0)
    resumed, other = training_with_zero(model, group)
    other.load_state_dict(states[0])
    resumed.load_state_dict(training.state_dict())
    train(resumed)
    return weights(model)


def training_with_zero(model: nn.Module, group: Any) -> tuple[PrivateTraining, Any]:
    optimizer = zero(model)
    return private(model, seed=3, ranks=group, make=lambda _: optimizer), optimizer


def of_users(group: Any, **options: Any) -> Tensor:
    """Return the weights after steps whose users have from 1 to 7 records, of which 3 count."""
    model, labels = small_model(), np.sqrt(np.arange(RECORDS)).astype(np.int64)
    plan = small_plan(records=None, units=Units(7, 3, "user"), lot_size=3)
    training = private(model, plan, seed=3, ranks=group, **options)
    for lot in training.lots(small_data(), units=labels):
        training.step(lot, batch_size=2)
    return weights(model)


def captured(group: Any) -> Tensor:
    model = small_model()
    training = private(model, seed=3, ranks=group)
    step = training.captured_step(small_data(), batch_size=8)
    while training.progress.steps_left:
        step()
    return weights(model)


# Each way to train, for several ranks and for one process.
WAYS: dict[str, Callable[[Any], Tensor]] = {
    "exact": lambda group: trained(group, mode="exact"),
    "exact, groups": lambda group: trained(group, mode="exact", plan=small_plan(clip_norm=GROUPS)),
    "exact, shaped": lambda group: trained(group, mode="exact", layer_covariances=shapes()),
    "exact, users": lambda group: of_users(group, mode="exact"),
    "fast": trained,
    "fast, users": of_users,
    "fast, groups": lambda group: trained(group, plan=small_plan(clip_norm=GROUPS)),
    "fast, Adam": lambda group: trained(group, make=adam),
    "fast, captured": captured,
}


QUICK = ("exact", "exact, users", "fast")


def quick(group: Any, folder: Path) -> Found:
    """Do a little of everything."""
    found: Found = {name: WAYS[name](group) for name in QUICK}
    return found | refused(group, folder) | neighbours(group, folder)


def equal(group: Any, _folder: Path) -> Found:
    """Train in every way."""
    found: Found = {name: way(group) for name, way in WAYS.items()}
    found["ZeRO"] = with_zero(group)
    model = small_model()
    training = private(model, mode="exact", layer_covariances=shapes(), ranks=group)
    train(training)
    return found | {"noisy": weights(model), "guarantee": str(training.guarantee)}


def silent(kind: type[BlockNoise]) -> None:
    """Leave the noise of this process out."""

    def nothing(_self: BlockNoise, values: Tensor, *_: object) -> Tensor:
        return values

    kind.added_to_shard = nothing  # type: ignore[assignment, method-assign]


def neighbours(group: Any, folder: Path) -> Found:
    """Return the sums of a lot of all records, and of all but one of the first and last rank."""
    silent(SimulatedNoise)
    records, rows = torch.load(folder / "records.pt"), {}
    for left_out in (None, 0, len(records) - 1):
        chosen = records.clone()
        if left_out is not None:
            chosen[left_out] = torch.nan  # which adds nothing
        for mode in ("fast", "exact"):
            rows[left_out, mode] = sum_of(chosen, group, mode)
    return {"sums": rows}


def sum_of(records: Tensor, group: Any, mode: Any) -> Tensor:
    """Return the un-noised sum of clipped gradients; records are the gradients themselves."""
    model = nn.Linear(records.shape[1], 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    plan = small_plan(records=len(records), lot_size=len(records), clip_norm=1.0, steps=1)
    # The optimiser undoes the sign and the division, by a power of two.
    optimizer = optim.SGD(model.parameters(), lr=float(len(records)))
    losses = partial(linear_losses, model)
    training = PrivateTraining(model, losses, optimizer, plan, seed=1, mode=mode, ranks=group)
    training.step(next(training.lots(records)), batch_size=4)
    return -model.weight.detach()[0]


def linear_losses(model: nn.Module, rows: Tensor) -> Tensor:
    losses: Tensor = model(rows.double())[:, 0]
    return losses


def dying(group: Any, folder: Path, at: str, victim: str) -> Found:
    """Train with a spending file and a checkpoint after each step; die where the test says."""
    checkpoint, me = folder / "checkpoint.pt", dist.get_rank()
    resumed = checkpoint.exists()
    watch(folder, "nowhere" if resumed or str(me) != victim else at)
    model = small_model()
    options: Any = {"spending": folder / "spent", "ranks": group}
    losses = partial(cross_entropy, model)
    training = PrivateTraining(model, losses, sgd(model), small_plan(), **options)
    if resumed:
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        training.load_state_dict(state["training"])
    steps = []
    for lot in training.lots(small_data()):
        if at == "sum" and str(me) == victim and lot.step == 1 and not resumed:
            os._exit(9)
        training.step(lot, batch_size=8)
        steps.append(lot.step)
        if me == 0:
            state = {"model": model.state_dict(), "training": training.state_dict()}
            torch.save(state, folder / "new.pt")
            (folder / "new.pt").replace(checkpoint)
    return {"steps": steps, "weights": weights(model), "spent": training.progress.steps_spent}


def watch(folder: Path, at: str) -> None:
    """Write down the keys that this rank draws by, and let it die at a place of its second step."""
    draw, spend = ExactNoise.added_to_shard, SpendingFile.spend

    def drawn(self: ExactNoise, values: Tensor, first: int, step: int, secret: bytes) -> Tensor:
        with (folder / f"keys-{dist.get_rank()}").open("ab") as file:
            file.write(secret)
        if step == 1 and at == "noise":
            os._exit(9)
        if step == 1 and at == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        noisy = draw(self, values, first, step, secret)
        if step == 1 and at == "sending":
            os._exit(9)
        return noisy

    def spent(self: SpendingFile) -> None:
        spend(self)
        if self.spent == 2 and at == "spending":
            os._exit(9)

    ExactNoise.added_to_shard = drawn  # type: ignore[method-assign]
    SpendingFile.spend = spent  # type: ignore[method-assign]


def main() -> None:
    program, folder, *words = sys.argv[1:]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=int(os.environ.get("RANK_SECONDS", "120"))),
    )
    found = globals()[program](dist.group.WORLD, Path(folder), *words)
    torch.save(found, Path(folder) / f"found-{rank}.pt")
    # What is left of trainings by now may hold the group by torch's own objects, such as ZeRO-1's.
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
