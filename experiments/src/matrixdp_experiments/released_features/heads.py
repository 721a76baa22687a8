"""From features that are clipped and released to a head, and how well it classifies the test part.

Everything is in units of the clip norm. Noise comes from a seed and protects nothing: these are
experiments. After the release nothing but it and the scale of its noise is used.
"""

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, optim

from matrixdp.errors import InvalidParameterError
from matrixdp.postprocess.shrinkage import shrunk
from matrixdp_experiments.grid.shuffled_training import train_shuffled
from matrixdp_experiments.grid.tasks import RecordsTask
from matrixdp_experiments.released_features.accounts import block_sizes
from matrixdp_experiments.released_features.cells import STEPWISE, Clip, FeatureRun
from matrixdp_experiments.released_features.linear_discriminant import (
    NoisyMoments,
    linear_discriminant,
    moments_of_rows,
)
from matrixdp_experiments.released_features.networks import (
    feature_parts,
    seeded_network,
)
from matrixdp_experiments.released_features.parts import Part, Parts
from matrixdp_experiments.released_features.settings import feature_setting_of
from matrixdp_experiments.released_features.streams import stream_seed

__all__ = [
    "ClipBall",
    "clip_ball",
    "projected_rows",
    "released_moments",
    "released_rows",
    "shrinking_map",
    "train_head",
]


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


def projected_rows(rows: Tensor) -> Tensor:
    """Return the nearest rows of norm 1 at most: before the noise there were no others."""
    norms: Tensor = rows.norm(dim=1, keepdim=True)
    return rows / norms.clamp(min=1.0)


def shrinking_map(rows: Tensor, noise_multiplier: float) -> Tensor:
    """Return the matrix M for which ``rows @ M`` has singular values shrunk as is best.

    This is `SingularValueShrinkage` for the Frobenius norm, on the device of the rows and for noise
    of a known scale. There are more rows than columns. A map, because whoever uses a head that was
    trained on shrunk rows has to treat a new row in the same way: M is 0 in the directions that
    were dropped, about which such a head knows nothing.
    """
    count, width = rows.shape
    exact = rows.double()
    # By the Gram matrix: the decomposition of all rows would take far longer.
    squares, right = torch.linalg.eigh(exact.T @ exact)
    seen = squares.clamp(min=0.0).sqrt() / (noise_multiplier * math.sqrt(count))
    sizes = torch.from_numpy(shrunk(seen.cpu().numpy(), width / count, "frobenius")).to(seen)
    # A singular value of 0 stays 0.
    kept = torch.where(sizes > 0.0, sizes / seen, 0.0)
    found: Tensor = right * kept @ right.T
    return found


class ClipBall(NamedTuple):
    """A ball that is known before any private record is seen."""

    centre: Tensor
    norm: float

    def clip(self, rows: Tensor) -> Tensor:
        """Return rows seen from the centre, scaled down to the norm, in units of it."""
        shifted = (rows - self.centre) / self.norm
        norms: Tensor = shifted.norm(dim=1, keepdim=True)
        return shifted / norms.clamp(min=1.0)


def clip_ball(rule: Clip, parts: Parts) -> ClipBall:
    """Return the ball of a public rule, for features.

    ``tanh``: around 0, with the root of the number of features, which no row exceeds. ``public``:
    around the mean row of the public part, with the median distance of its rows from there.
    """
    public = parts.public.inputs
    if rule == "tanh":
        return ClipBall(torch.zeros_like(public[0]), math.sqrt(public.shape[1]))
    centre = public.mean(0)
    return ClipBall(centre, float((public - centre).norm(dim=1).median()))


def released_rows(rows: Tensor, run: FeatureRun) -> Tensor:
    """Return rows of norm 1 at most with the noise of a run; MVG's last block has its own."""
    if run.noise_multiplier is None:
        return rows
    scales = torch.full((len(rows), 1), run.noise_multiplier)
    if run.last_block_multiplier is not None:
        _, last = block_sizes(len(rows), run.batch_size)
        scales[-last:] = run.last_block_multiplier
    return rows + (scales * _normal(rows.shape, run.seed)).to(rows.device)


def released_moments(rows: Tensor, targets: Tensor, classes: int, run: FeatureRun) -> NoisyMoments:
    """Return the joint moments of rows and labels with symmetric noise: labels are covered, too.

    The noise has the multiplier's scale on the diagonal, and each pair of mirrored entries is one
    draw of that over the root of 2.
    """
    scale = run.noise_multiplier or 0.0
    labels = torch.nn.functional.one_hot(targets, classes).double()
    joined = torch.cat([rows.double(), labels], dim=1)
    drawn = _normal((joined.shape[1], joined.shape[1]), run.seed).double()
    # A mirrored pair is one draw over the root of 2, and the diagonal is one draw each.
    noise = (drawn.triu(1) + drawn.triu(1).T) / math.sqrt(2.0) + drawn.diagonal().diag()
    moments = joined.T @ joined + scale * noise.to(joined.device)
    width = rows.shape[1]
    apart = scale / math.sqrt(2.0)
    return NoisyMoments(
        gram=moments[:width, :width],
        sums=moments[:width, width:],
        # A label is a unit vector: its square on the diagonal counts it.
        counts=moments.diagonal()[width:],
        gram_noise=apart,
        sum_noise=torch.full((classes,), apart, dtype=torch.float64, device=joined.device),
    )


def _normal(shape: "torch.Size | tuple[int, int]", seed: int) -> Tensor:
    # On the CPU, so that a seed means the same noise on every device.
    return torch.randn(shape, generator=torch.Generator().manual_seed(stream_seed("noise", seed)))
