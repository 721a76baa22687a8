"""The two ways to train: privately through the engine with simulated noise, and plainly."""

import math
from collections.abc import Iterator

import msgspec
import torch
from torch import Tensor, nn, optim

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.experiments.cells import Run
from matrixdp.experiments.settings import DELTA, setting_of
from matrixdp.experiments.tasks import Task, load_task, this_device
from matrixdp.rounding import product_up
from matrixdp.training import PrivateTraining, TrainingPlan
from matrixdp.training.cuda_graph import repeatable

__all__ = ["train_and_test", "train_plainly", "train_privately", "train_shuffled"]

_WARM_UP = 0.05  # of the steps of plain training
_LARGEST_SHIFT = 4  # pixels


def train_and_test(run: Run) -> float:
    """Train a model as a run says, and return the accuracy of its last state.

    The seed decides the first weights, the lots and the noise. On a GPU some kernels add up in an
    order that is not fixed, so that two runs may differ in their last bits.
    """
    torch.manual_seed(run.seed)
    task = load_task(run.dataset, run.split, this_device(), half=run.half is True)
    # The sampling rate, and with it the epsilon, is that of the stated number of records.
    if len(task.data[0]) != run.records:
        raise InvalidParameterError(
            f"the data of dataset={run.dataset!r} has {len(task.data[0])} records, but it is "
            f"accounted for with {run.records}: use the data set that the page describes"
        )
    if run.noise_multiplier is None:
        train_plainly(task, run)
    else:
        train_privately(task, run)
    return task.accuracy()


def train_privately(task: Task, run: Run) -> None:
    """Train with Poisson lots, joint clipping and simulated noise; what is meant by ``private``.

    The noise comes from a seed and protects nothing: this is an experiment.
    """
    optimizer = optim.SGD(task.model.parameters(), lr=run.learning_rate, momentum=run.momentum)
    training = _private_training(task.model, optimizer, run)
    _take_steps(training, task, setting_of(run.dataset).batch_size)


def _take_steps(training: PrivateTraining, task: Task, batch_size: int) -> None:
    """Take all steps of the plan, on a GPU as a CUDA graph where batches have one shape."""
    if task.fixed_shapes:
        step = training.captured_step(task.data, task.losses, batch_size=batch_size)
        while training.steps_left:
            step()
        return
    for lot in training.lots(task.data):
        for batch in lot.batches(batch_size):
            training.accumulate(task.losses(*batch))
        training.step()


def _private_training(model: nn.Module, optimizer: optim.Optimizer, run: Run) -> PrivateTraining:
    if run.clip_norm is None or run.noise_multiplier is None:
        raise InvalidParameterError("the run has no clip norm or no noise: train plainly")
    plan = TrainingPlan(
        records=run.records,
        lot_size=run.lot_size,
        steps=run.steps,
        clip_norm=run.clip_norm,
        delta=DELTA,
        noise_multiplier=run.noise_multiplier,
        sum_norm=None if run.sum_norm is msgspec.UNSET else run.sum_norm,
    )
    # The plan's scale may be rounded up, and no layer may have less than that.
    noise = {
        name: Isotropic(max(plan.noise_scale, product_up(multiplier, plan.sensitivity)))
        for name, multiplier in run.layers.items()
    }
    return PrivateTraining(model, optimizer, plan, seed=run.seed, noise=noise)


def train_plainly(task: Task, run: Run) -> None:
    """Train without clipping and noise, on shuffled lots, with a learning rate that falls to 0."""
    optimizer = optim.SGD(
        task.model.parameters(),
        lr=run.learning_rate,
        momentum=run.momentum,
        weight_decay=run.weight_decay,
    )
    train_shuffled(
        task,
        optimizer,
        seed=run.seed,
        lot_size=run.lot_size,
        steps=run.steps,
        augmented=run.augmented,
    )


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
    # Every lot is written to the same place, so that a GPU can repeat a step in a single launch.
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
