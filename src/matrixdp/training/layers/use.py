"""What one use of one layer contributes to the gradients of every example.

A layer is recorded by its input and by the gradient of the losses with respect to its output. The
gradients of its parameters follow from these two, example by example, without another backward
pass: as norms where those are cheaper than the gradients, and as sums weighted by example.
"""

import abc
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = [
    "KeptGradients",
    "LayerUse",
    "NormBounds",
    "PerExample",
    "norm_bounds_of",
    "trainable",
    "weighted_sum_of",
]

PerExample = dict[nn.Parameter, Tensor]
"""For each parameter a tensor whose first axis is the examples."""

# As many squares are added up in float32 at a time: what that rounds off stays below 2**-10.
_MOST_TOGETHER = 4096


class NormBounds(NamedTuple):
    """Upper bounds of every example's norm: each value times one plus the share, plus the least.

    Keeping the two numbers apart saves a pass over the values for every parameter.
    """

    values: Tensor
    share: float
    least: float

    def written_out(self) -> Tensor:
        """Return the bounds themselves, in float64."""
        return self.values.to(torch.float64) * (1.0 + self.share) + self.least


def norm_bounds_of(gradients: Tensor) -> NormBounds:
    """Return bounds of every example's norm.

    A float32 sum of k squares is off by at most a share of ``(k + 1) u`` in any order of summation
    (Higham 2002, section 3.1), its root by half of that. More than a few thousand are added up in
    parts, and the parts in float64. Squares below 2**-126 may count as zero, so k numbers may have
    a norm of ``sqrt(k) 2**-63`` more.
    """
    flat = gradients.flatten(1)
    width = flat.shape[1]
    least = math.sqrt(width) * 2.0**-63
    if width <= _MOST_TOGETHER:
        return NormBounds(_norms(flat), (width + 4) * 2.0**-24, least)
    whole = width - width % _MOST_TOGETHER
    parts = [flat[:, :whole].unflatten(1, (-1, _MOST_TOGETHER))]
    parts += [flat[:, None, whole:]] if whole < width else []
    norms = [_norms(part).to(torch.float64) for part in parts]
    total = torch.linalg.vector_norm(torch.cat(norms, dim=1), dim=1)
    return NormBounds(total, (_MOST_TOGETHER + 8) * 2.0**-24, least)


def _norms(rows: Tensor) -> Tensor:
    """Return norms along the last axis, in float32 at least: 16 bits would round the result."""
    kind = torch.promote_types(rows.dtype, torch.float32)
    return torch.linalg.vector_norm(rows, dim=-1, dtype=kind)


def weighted_sum_of(gradients: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum_e weights[e] gradients[e]`` as one matrix-vector product, in float32."""
    flat = gradients.flatten(1)
    return (weights.to(flat.dtype) @ flat).reshape(gradients.shape[1:])


def trainable(*parameters: nn.Parameter | None) -> tuple[nn.Parameter, ...]:
    """Return those parameters that exist and are to be trained."""
    return tuple(part for part in parameters if part is not None and part.requires_grad)


class LayerUse(abc.ABC):
    """One call of a layer on one batch, after the backward pass.

    Parameters with several uses (shared ones, or a module that is called twice) need the cross
    terms between their uses, so they always go through `gradients`. The two other methods are
    shortcuts for parameters with a single use.
    """

    @property
    @abc.abstractmethod
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters whose gradients these are."""

    @abc.abstractmethod
    def gradients(self) -> PerExample:
        """Return the gradient of every example, of shape ``(examples, *parameter.shape)``."""

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return upper bounds of every example's gradient norm.

        They bound the gradients whose weighted sum `weighted_sum` forms, apart from the rounding of
        that sum: whatever a shortcut may have rounded off is added.
        """
        return {parameter: norm_bounds_of(part) for parameter, part in self.gradients().items()}

    def weighted_sum(self, weights: Tensor) -> Mapping[nn.Parameter, Tensor]:
        """Return the sum of all examples' gradients, each times its weight."""
        return {
            parameter: weighted_sum_of(part, weights)
            for parameter, part in self.gradients().items()
        }


class KeptGradients(LayerUse):
    """A layer whose gradients are small enough to be kept: norms and sums are read off them."""

    def __init__(self, gradients: PerExample) -> None:
        self._gradients = gradients

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters whose gradients were kept."""
        return tuple(self._gradients)

    def gradients(self) -> PerExample:
        """Return what was kept."""
        return self._gradients
