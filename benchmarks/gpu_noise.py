"""Exact noise on a GPU: elements per second, beside `torch.randn` and a copy on the device.

The kernel alone, and a release as a user calls it, undecided elements included.
"""

import argparse
import csv
import time
from collections.abc import Callable

import numpy as np
import torch
from saved import RESULTS, commit

import matrixdp as mdp
from matrixdp.noise import NoiseContext, ReleaseKey
from matrixdp.noise.application.tensors import cuda_kernel
from matrixdp.noise.kernels.cuda.kernel import ScaleTensor, UndecidedList

_ROWS = 1000
_KINDS = {"float32": torch.float32, "float64": torch.float64}


def seconds(work: Callable[[], object], repetitions: int = 20) -> float:
    """Return the time that the GPU takes for some work."""
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repetitions):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / repetitions


def seconds_on_the_clock(work: Callable[[], object], repetitions: int = 20) -> float:
    """Return the time that passes until some work is done."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repetitions):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repetitions


def noise_alone(value: torch.Tensor, scales: np.ndarray) -> Callable[[], None]:
    """Return the launches of the kernels on a value."""
    kind = np.dtype(str(value.dtype).removeprefix("torch."))
    context = NoiseContext.of_scales(tuple(value.shape), kind, scales)
    kernel, stream = cuda_kernel(0), ReleaseKey.generate().bind(context)
    there = ScaleTensor(scales, context.shape, kernel.device)
    undecided, out = UndecidedList(value.numel(), kernel.device), torch.empty_like(value)

    def drawn() -> None:
        undecided.tensor.zero_()
        kernel(value, out, there, stream, undecided)
        kernel.decide(out, there, stream, undecided)

    return drawn


def rows_of(size: int, name: str) -> list[tuple[str, int, str, float]]:
    """Return what was measured for a size and a type, in 10**9 elements per second."""
    value = torch.zeros(_ROWS, size // _ROWS, dtype=_KINDS[name], device="cuda")
    mechanism = mdp.IMGM(mdp.FrobeniusBall(1.0, neighbouring="replace"), mdp.Budget(1.0, 1e-5))
    scales = np.random.default_rng(0).uniform(1.0, 2.0, (_ROWS, 1))
    works = {
        "noise": seconds(noise_alone(value, np.array([[3.7]]))),
        "noise, a scale for each row": seconds(noise_alone(value, scales)),
        "release": seconds_on_the_clock(lambda: mechanism.release(value)),
        "torch.randn": seconds(lambda: torch.randn_like(value)),
        "copy on the device": seconds(value.clone),
    }
    return [(what, size, name, round(size / took / 1e9, 2)) for what, took in works.items()]


def main() -> None:
    """Measure two sizes of two types."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the figures in results/")
    save = parser.parse_args().save
    rows = [
        row for size in (15_000_000, 134_000_000) for name in _KINDS for row in rows_of(size, name)
    ]
    for row in rows:
        print(*row, sep="  ")
    if save:
        facts = {"commit": commit(), "device": torch.cuda.get_device_name()}
        with (RESULTS / "gpu_noise.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("what", "elements", "type", "giga_elements_per_second"))
            writer.writerows([*rows, *facts.items(), ("torch", torch.__version__)])


if __name__ == "__main__":
    main()
