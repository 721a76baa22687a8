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
from numpy.typing import NDArray
from torch import Tensor, nn, optim
from torch.utils.data import Subset, TensorDataset

from matrixdp.covariance import Covariance, Diagonal, Kronecker
from matrixdp.errors import MatrixDPError
from matrixdp.training import PrivateTraining, Units
from matrixdp.training.lots.sampling import SecureCoins
from matrixdp.training.noise.block_noise import BlockNoise, ExactNoise, SimulatedNoise
from matrixdp.training.spending import SpendingFile
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

Found = dict[str, Any]
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


def shapes() -> dict[str, Covariance]:
    """Return a covariance whose noise is drawn by element, and one that is rotated."""
    turned = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    rotated = Kronecker.from_directions(rows=(turned, np.array([1.1, 1.5, 2.0])))
    return {"0": Diagonal(np.linspace(1.0, 1.6, 35).reshape(5, 7)), "2": rotated}


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


def begun(training: PrivateTraining, data: Any) -> object:
    """Begin, and raise another error if a refusal spends something."""
    before = training.progress.steps_spent
    try:
        return training.lots(data)
    finally:
        assert training.progress.steps_spent == before


def with_other_weights(group: Any, *, last: bool) -> object:
    model = small_model()
    with torch.no_grad():
        model.get_parameter("0.weight")[0, 0] += last * 2.0**-20
    return begun(private(model, ranks=group), small_data())


def with_fewer_records(group: Any, *, last: bool) -> object:
    inputs, targets = small_data()
    fewer = inputs[: RECORDS - last], targets[: RECORDS - last]
    return begun(private(small_model(), ranks=group), fewer)


def with_another_checkpoint(group: Any, *, last: bool) -> object:
    training = private(small_model(), seed=1, ranks=group)
    if last:
        training.load_state_dict(training.state_dict() | {"steps_spent": 2})
    return begun(training, small_data())


def elsewhere(group: Any, *, last: bool) -> object:
    """Take a step on all ranks but the last one, which begins again."""
    training = private(small_model(), ranks=group)
    lot = next(training.lots(small_data()))
    if last:
        return training.lots(small_data())
    training.step(lot, batch_size=8)
    return None


def with_other_data(group: Any, *, last: bool) -> object:
    inputs, targets = small_data()
    order = torch.arange(RECORDS).roll(int(last))
    return begun(private(small_model(), ranks=group), (inputs[order], targets[order]))


def with_other_users(group: Any, *, last: bool) -> object:
    labels = np.roll(np.arange(RECORDS) // 4, 4 * int(last))
    plan = small_plan(records=None, units=Units(10, 3, "user"))
    return private(small_model(), plan, ranks=group).lots(small_data(), units=labels)


def with_another_split(group: Any, *, last: bool) -> object:
    chosen = np.random.default_rng(int(last)).permutation(RECORDS + 5)[:RECORDS]
    rows = torch.zeros(RECORDS + 5, 6), torch.zeros(RECORDS + 5, dtype=torch.int64)
    data = Subset(TensorDataset(*rows), chosen.tolist())
    return begun(private(small_model(), ranks=group), data)


def with_another_optimizer(group: Any, *, last: bool) -> None:
    model = small_model()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if last:  # as after a checkpoint that only others have loaded
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    train(private(model, ranks=group, make=lambda _: optimizer))


def with_other_trainings(group: Any, *, last: bool) -> None:
    """Step two trainings of other clip norms, in another order on the last rank."""
    norms = (1.0, 100.0)
    trainings = [private(small_model(), small_plan(clip_norm=one), ranks=group) for one in norms]
    lots = [training.lots(small_data()) for training in trainings]
    for index in (1, 0) if last else (0, 1):
        trainings[index].step(next(lots[index]), batch_size=8)


def with_other_shapes(group: Any, *, last: bool) -> object:
    named = shapes()
    named = dict(reversed(named.items())) if last else named
    return private(small_model(), ranks=group, layer_covariances=named)


def with_other_noise(group: Any, *, last: bool) -> object:
    """Name noise that is drawn by element, which is drawn at once on all ranks but the last."""
    plain, turned = Diagonal(np.full((3, 6), 2.0)), shapes()["2"]
    named = {"2": plain if last else turned}
    return private(small_model(), ranks=group, layer_covariances=named)


def in_another_layout(group: Any, *, last: bool) -> object:
    layout = torch.channels_last if last else torch.contiguous_format
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 2, 2), nn.Flatten())
    model.to(memory_format=layout)  # type: ignore[call-overload]
    return private(model, ranks=group)


# What is other on the last rank, as its argument `last` says.
REFUSALS: dict[str, Callable[..., object]] = {
    "plan": lambda group, last: private(
        small_model(), small_plan(steps=5 if last else 4), ranks=group
    ),
    "mode": lambda group, last: private(
        small_model(), mode="exact" if last else "fast", ranks=group
    ),
    "seed": lambda group, last: private(small_model(), seed=1 if last else None, ranks=group),
    "weights": with_other_weights,
    "records": with_fewer_records,
    "model": lambda group, last: private(nn.Linear(6, 4 if last else 3), ranks=group),
    "nothing to train": lambda group, last: private(
        small_model().requires_grad_(not last), ranks=group
    ),
    "elsewhere": elsewhere,
    "data": with_other_data,
    "users": with_other_users,
    "split": with_another_split,
    "optimizer": with_another_optimizer,
    "trainings": with_other_trainings,
    "shapes": with_other_shapes,
    "noise": with_other_noise,
    "layout": in_another_layout,
    "checkpoint": with_another_checkpoint,
}


def refused(group: Any, folder: Path) -> Found:
    """Return what is raised, on this rank, because of the last one."""
    last = dist.get_rank() == dist.get_world_size() - 1
    found: Found = {}
    for name, work in REFUSALS.items():
        try:
            work(group, last=last)
        except MatrixDPError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found | failing(group, last=last) | unwritable(group, folder)


def failing(group: Any, *, last: bool) -> Found:
    """Take a step of losses that fail on the last rank, and take it again when they do not."""
    model, found = small_model(), Found()
    fails = False

    def losses(rows: Tensor, labels: Tensor) -> Tensor:
        if fails:
            raise ValueError(f"secret {rows}")
        return cross_entropy(model, rows, labels)

    training = PrivateTraining(model, losses, sgd(model), small_plan(lot_size=40), ranks=group)
    lot = next(training.lots(small_data()))
    fails = last
    try:
        training.step(lot, batch_size=8)
    except (MatrixDPError, ValueError) as error:
        found["losses"] = f"{type(error).__name__}: {error}"
    fails = False
    before = weights(model)
    training.step(lot, batch_size=8)
    return found | {"moved": not torch.equal(before, weights(model))}


def unwritable(group: Any, folder: Path) -> Found:
    """Ask for a lot whose step the first rank cannot write down."""
    path = folder / "gone"
    lots = private(small_model(), spending=path, ranks=group).lots(small_data())
    path.unlink(missing_ok=True)
    dist.barrier()
    drawn: list[int] = []

    def words(_self: SecureCoins, number: int, step: int) -> NDArray[np.uint64]:
        drawn.append(step)
        return np.zeros(number, np.uint64)

    former = SecureCoins.words
    SecureCoins.words = words  # type: ignore[assignment, method-assign]
    try:
        next(lots)
    except MatrixDPError as error:
        return {"unwritable": f"{type(error).__name__}: {error}", "drawn": drawn}
    finally:
        SecureCoins.words = former  # type: ignore[method-assign]
    return {}


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
