"""Trainings that are refused because the last rank is another; each says what it has seen."""

from collections.abc import Callable
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

__all__ = ["Found", "refused", "shapes"]

Found = dict[str, Any]


def shapes() -> dict[str, Covariance]:
    """Return a covariance whose noise is drawn by element, and one that is rotated."""
    turned = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    rotated = Kronecker.from_directions(rows=(turned, np.array([1.1, 1.5, 2.0])))
    return {"0": Diagonal(np.linspace(1.0, 1.6, 35).reshape(5, 7)), "2": rotated}


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
