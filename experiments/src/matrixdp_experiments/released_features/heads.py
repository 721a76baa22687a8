"""From released features to a head, and how well it classifies the test part."""

from pathlib import Path

import torch
from torch import Tensor, optim

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.grid.shuffled_training import train_shuffled
from matrixdp_experiments.grid.tasks import RecordsTask
from matrixdp_experiments.released_features.cells import STEPWISE, FeatureRun
from matrixdp_experiments.released_features.linear_discriminant import (
    linear_discriminant,
    moments_of_rows,
)
from matrixdp_experiments.released_features.networks import (
    feature_parts,
    seeded_network,
)
from matrixdp_experiments.released_features.parts import Part
from matrixdp_experiments.released_features.releases import (
    clip_ball,
    released_moments,
    released_rows,
)
from matrixdp_experiments.released_features.settings import feature_setting_of
from matrixdp_experiments.released_features.shrinkage import projected_rows, shrinking_map
from matrixdp_experiments.released_features.streams import stream_seed

__all__ = ["train_head"]


def train_head(folder: Path, run: FeatureRun) -> float:
    """Release the features of the private part as a run says, and return the accuracy of its head.

    Test records are clipped like the others, and have no noise: whoever uses the model computes the
    features of a new record with the same public network and keeps them.
    """
    parts = feature_parts(folder, run.dataset, run.network, run.seed)
    ball = clip_ball(run.clip, parts)
    private, test = (
        Part(ball.clip(part.inputs), part.targets) for part in (parts.private, parts.test)
    )
    if len(private.inputs) != run.records:
        raise InvalidParameterError(
            f"records={run.records} is not the number of private records of "
            f"dataset={run.dataset!r}, which is {len(private.inputs)}: plan the run anew"
        )
    if run.method in STEPWISE:
        return _train_by_steps(run, private, test)
    return _solve(run, private, test)


def _train_by_steps(run: FeatureRun, private: Part, test: Part) -> float:
    """Train a new head of the network's form, on features of root mean square 1."""
    if run.learning_rate is None or run.head_seed is None:
        raise InvalidParameterError("the run has no learning rate or no head seed: plan it anew")
    rows, tested = _processed(run, released_rows(private.inputs, run), test.inputs)
    # Of what was released, so that it costs nothing.
    size = float(rows.square().mean().sqrt()) or 1.0
    # Not the first weights of the network's own head: its body was trained together with those, so
    # that a head of the same weights would classify before it has seen a private record.
    head = seeded_network(run.dataset, run.head_seed).head.to(rows.device)
    task = RecordsTask(head, (rows / size, private.targets), (tested / size, test.targets))
    # One kernel for all parameters: on a GPU small heads are bound by the number of launches.
    optimizer = optim.Adam(
        head.parameters(), lr=run.learning_rate, fused=rows.device.type == "cuda"
    )
    lots = stream_seed("lots", run.seed)
    train_shuffled(task, optimizer, seed=lots, lot_size=run.batch_size, steps=run.steps)
    return task.accuracy()


def _processed(run: FeatureRun, rows: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Return released rows and test rows after the same post-processing, which is free."""
    if run.method == "projected":
        return projected_rows(rows), projected_rows(test)
    if run.method == "shrunk" and run.noise_multiplier:
        # Made from what was released, so that it may be handed on with the head.
        mapped = shrinking_map(rows, run.noise_multiplier)
        return (rows.double() @ mapped).to(rows), (test.double() @ mapped).to(test)
    return rows, test


def _solve(run: FeatureRun, private: Part, test: Part) -> float:
    classes = feature_setting_of(run.dataset).classes
    with torch.no_grad():
        if run.method == "moments":
            moments = released_moments(private.inputs, private.targets, classes, run)
        else:
            rows = released_rows(private.inputs, run)
            known = run.noise_multiplier or 0.0 if run.method == "corrected" else 0.0
            moments = moments_of_rows(rows, private.targets, classes, known)
        return linear_discriminant(moments).accuracy(test.inputs, test.targets)
