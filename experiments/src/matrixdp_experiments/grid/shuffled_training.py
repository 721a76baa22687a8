"""Training on shuffled lots, without clipping and noise: of whole models and of heads."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn, optim

from matrixdp.training.kernels.cuda_graph import repeatable
from matrixdp_experiments.grid.tasks import Task

__all__ = ["train_shuffled"]

_WARM_UP = 0.05  # of the steps
_LARGEST_SHIFT = 4  # pixels


def train_shuffled(
    task: Task,
    optimizer: optim.Optimizer,
    *,
    seed: int,
    lot_size: int,
    steps: int,
    augmented: bool = False,
) -> None:
    """Take steps on shuffled lots, with a learning rate that rises at first and then falls to 0."""
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: _share_of_rate(step, steps))
    # On the CPU, so that lots do not depend on the device.
    generator = torch.Generator().manual_seed(seed)
    task.model.train()
    inputs = task.data[0]
    # Every lot is written to the same address, so that a GPU can repeat a step in a single launch.
    first = torch.arange(lot_size, device=inputs.device) % len(inputs)
    lot = [part[first] for part in task.data]

    def form_gradients() -> None:
        optimizer.zero_grad()
        task.losses(*lot).mean().backward()

    repeat = repeatable(form_gradients, inputs.device) if task.fixed_shapes else form_gradients
    for numbers in _shuffled_lots(len(inputs), lot_size, steps, generator, inputs.device):
        for held, part in zip(lot, task.data, strict=True):
            torch.index_select(part, 0, numbers, out=held)
        if augmented:
            lot[0].copy_(_flipped_and_shifted(lot[0], generator))
        repeat()
        optimizer.step()
        schedule.step()


def _share_of_rate(step: int, steps: int) -> float:
    """Return the share of the learning rate at a step: up in a line, then down as a cosine."""
    done = (step + 1) / steps
    return min(1.0, done / _WARM_UP) * 0.5 * (1.0 + math.cos(math.pi * step / steps))


def _shuffled_lots(
    records: int, lot_size: int, steps: int, generator: torch.Generator, device: torch.device
) -> Iterator[Tensor]:
    """Yield the numbers of the records of each step: all of them once before any comes again."""
    waiting = torch.empty(0, dtype=torch.int64, device=device)
    for _ in range(steps):
        while len(waiting) < lot_size:
            # To the device once for many steps: a copy in each step would wait for the GPU.
            order = torch.randperm(records, generator=generator).to(device)
            waiting = torch.cat([waiting, order])
        yield waiting[:lot_size]
        # What is left of an epoch begins the next lot: no record is dropped.
        waiting = waiting[lot_size:]


def _flipped_and_shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip half of the images, and shift each one by a few pixels."""
    count, _, height, width = images.shape
    flips = torch.rand(count, generator=generator) < 0.5
    shifts = torch.randint(0, 2 * _LARGEST_SHIFT + 1, (2, count, 1), generator=generator)
    rows = (torch.arange(height) + shifts[0])[:, None, :, None].to(images.device)
    columns = (torch.arange(width) + shifts[1])[:, None, None, :].to(images.device)
    flipped = torch.where(flips.to(images.device)[:, None, None, None], images.flip(3), images)
    # One gather for all images, each with its own window.
    padded = nn.functional.pad(flipped, [_LARGEST_SHIFT] * 4)
    numbers = torch.arange(count, device=images.device)[:, None, None, None]
    channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return padded[numbers, channels, rows, columns]
