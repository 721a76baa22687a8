"""The two ways to train: privately through the engine with simulated noise, and plainly."""

import msgspec
import torch
from torch import optim

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.rounding import product_up
from matrixdp.training import PrivateTraining, TrainingPlan
from matrixdp_experiments.gradients.settings import setting_of
from matrixdp_experiments.grid.runs import DELTA, Run
from matrixdp_experiments.grid.shuffled_training import train_shuffled
from matrixdp_experiments.grid.tasks import Task, load_task, this_device

__all__ = ["train_and_test", "train_plainly", "train_privately"]


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
    training = _private_training(task, optimizer, run)
    _take_steps(training, task, setting_of(run.dataset).batch_size)


def _take_steps(training: PrivateTraining, task: Task, batch_size: int) -> None:
    """Take all steps of the plan, on a GPU as a CUDA graph where batches have one shape."""
    if task.fixed_shapes:
        step = training.captured_step(task.data, batch_size=batch_size)
        while training.progress.steps_left:
            step()
        return
    for lot in training.lots(task.data):
        training.step(lot, batch_size=batch_size)


def _private_training(task: Task, optimizer: optim.Optimizer, run: Run) -> PrivateTraining:
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
    covariances = {
        name: Isotropic(max(plan.noise_scale, product_up(multiplier, plan.sensitivity)))
        for name, multiplier in run.layers.items()
    }
    return PrivateTraining(
        *(task.model, task.losses, optimizer, plan), seed=run.seed, layer_covariances=covariances
    )


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
