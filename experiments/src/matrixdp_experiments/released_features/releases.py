"""Clipping features to a public norm, and releasing them with simulated noise.

Everything is in units of the clip norm. Noise comes from a seed and protects nothing: these are
experiments.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matrixdp_experiments.released_features.accounts import block_sizes
from matrixdp_experiments.released_features.cells import Clip, FeatureRun
from matrixdp_experiments.released_features.linear_discriminant import NoisyMoments
from matrixdp_experiments.released_features.parts import Parts
from matrixdp_experiments.released_features.streams import stream_seed

__all__ = ["ClipBall", "clip_ball", "released_moments", "released_rows"]


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
