"""The time of a private step over that of a plain one: on several ranks, and in one process.

Ranks are processes on this machine that speak by gloo, with one thread each. A plain step is one of
`DistributedDataParallel` there, and an ordinary one in one process. Both kinds of steps take turns,
so that a slower minute is one for both. Lots are of one size in all, of which ranks have a share.
A private step is what users get: secret lots, drawn from eight times as many records, and exact
noise. Times are of the CPU, the mean over ranks, beside those of the clock: with as many ranks as
cores, what else the machine does shows in the clock alone. Processes are started several times, and
the median over these is taken: where their memory lies changes a step by up to a third.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from saved import save
from torch import Tensor, nn, optim
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from training_settings import lenet

from matrixdp.training import PrivateTraining, TrainingPlan

LOT = 512
DATA = 8  # of so many times as many records lots are drawn
WARM_UP = 3
Step = Callable[[], None]


class Times(NamedTuple):
    """The median times of a step, in milliseconds."""

    cpu: float
    clock: float


def wide() -> nn.Module:
    """Return a perceptron of 5.8 million parameters."""
    layers = [nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(2048, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {"LeNet": lenet, "MLP of 5.8 M": wide}


def data() -> tuple[Tensor, Tensor]:
    """Return made-up images and labels."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(DATA * LOT, 1, 28, 28, generator=generator)
    return inputs, torch.randint(0, 10, (DATA * LOT,), generator=generator)


def made(name: str) -> nn.Module:
    """Return the model, with the same weights everywhere."""
    torch.manual_seed(0)
    return MODELS[name]()


def plain(name: str, ranks: int) -> Step:
    """Return an ordinary step on a share of a lot."""
    model = made(name)
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimizer = optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    inputs, targets = (part[: LOT // ranks] for part in data())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def private(name: str, ranks: int) -> Step:
    """Return a private step."""
    model = made(name)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(model(inputs), targets, reduction="none")

    plan = TrainingPlan(
        records=DATA * LOT, lot_size=LOT, steps=1000, clip_norm=1.0, noise_multiplier=30.0,
        delta=1e-5,
    )  # fmt: skip
    optimizer = optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    group: Any = dist.group.WORLD if ranks > 1 else None
    training = PrivateTraining(model, losses, optimizer, plan, ranks=group)
    lots = training.lots(data())
    return lambda: training.step(next(lots), batch_size=2 * LOT // ranks)


def measured(rank: int, ranks: int, name: str, repetitions: int, folder: str) -> None:
    """Take steps in turns, and leave their median times in a file."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if ranks > 1:
        meeting = f"file://{folder}/meeting"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    ways = {"plain": plain(name, ranks), "private": private(name, ranks)}
    taken: dict[str, list[Times]] = {way: [] for way in ways}
    for _ in range(WARM_UP + repetitions):
        for way, step in ways.items():
            if ranks > 1:
                dist.barrier()
            cpu, clock = time.process_time(), time.perf_counter()
            step()
            taken[way].append(Times(time.process_time() - cpu, time.perf_counter() - clock))
    medians = {
        way: [1e3 * statistics.median(column) for column in zip(*times[WARM_UP:], strict=True)]
        for way, times in taken.items()
    }
    torch.save(medians, Path(folder) / f"{rank}.pt")
    if ranks > 1:
        dist.destroy_process_group()


def times_of(ranks: int, name: str, repetitions: int) -> dict[str, Times]:
    """Return the times of both kinds of steps once processes are started: the mean over ranks."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measured, (ranks, name, repetitions, folder), nprocs=ranks)  # type: ignore[attr-defined, no-untyped-call]
        found = [torch.load(Path(folder) / f"{rank}.pt") for rank in range(ranks)]
    return {
        way: Times(*(statistics.fmean(one[way][kind] for one in found) for kind in (0, 1)))
        for way in found[0]
    }


def medians_of(name: str, ranks: int, starts: int, repetitions: int) -> dict[int, dict[str, Times]]:
    """Return the times of both kinds of steps in one process and on ranks, started in turns."""
    found: dict[int, list[dict[str, Times]]] = {1: [], ranks: []}
    for _ in range(starts):
        for number, times in found.items():
            times.append(times_of(number, name, repetitions))
    return {
        number: {
            way: Times(*map(statistics.median, zip(*(one[way] for one in times), strict=True)))
            for way in times[0]
        }
        for number, times in found.items()
    }


def main() -> None:
    """Measure every model in one process and on ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--save", action="store_true", help="keep the figures in results/")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    for name in MODELS:
        found = medians_of(name, arguments.ranks, arguments.starts, arguments.repetitions)
        for ranks, times in found.items():
            where = f"{name}, {ranks} {'process' if ranks == 1 else 'ranks'}"
            for way, (cpu, clock) in times.items():
                figures |= {f"{where}, {way}, CPU ms": cpu, f"{where}, {way}, clock ms": clock}
            figures[f"{where}, ratio of CPU"] = times["private"].cpu / times["plain"].cpu
            figures[f"{where}, ratio of clock"] = times["private"].clock / times["plain"].clock
            print(where, *(f"{way} {cpu:.1f} {clock:.1f}" for way, (cpu, clock) in times.items()))
    for what, figure in figures.items():
        print(f"{what}: {figure:.4g}")
    save("training_ranks", figures, ["torch"])


if __name__ == "__main__":
    main()
