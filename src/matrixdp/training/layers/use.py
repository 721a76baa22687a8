"""The contribution of one use of a layer to the gradients of every example.

A layer's input is kept, and the gradient of the losses with respect to its output. The
gradients of its parameters follow from these two, example by example, without another backward
pass: as norms where those are cheaper than the gradients, and as sums weighted by example.
"""

import abc
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds

__all__ = [
    "KeptGradients",
    "LayerUse",
    "MeasuredUse",
    "PerExample",
    "norm_bounds_of",
    "outer_product_bounds",
    "trainable",
    "weighted_sum_of",
    "without",
]

PerExample = dict[nn.Parameter, Tensor]
"""For each parameter a tensor whose first axis is the examples."""

# As many squares are added up in float32 at a time: what that rounds off stays below 2**-10.
_MOST_TOGETHER = 4096
# The square of any smaller number may be lost to underflow, also where subnormals count as zero.
_LARGEST_LOST = 2.0**-62


def norm_bounds_of(gradients: Tensor) -> NormBounds:
    """Return bounds of every example's norm.

    A float32 sum of k squares is off by at most a share of ``(k + 1) u`` in any order of summation
    (Higham 2002, section 3.1), its root by half of that. More than a few thousand are added up in
    parts, and the parts in float64.
    """
    flat = _rows(gradients)
    width = flat.shape[1]
    # The norm of 16-bit numbers would be a 16-bit number itself, which may be too small by 2**-8.
    wide = torch.promote_types(flat.dtype, torch.float32)
    if width <= _MOST_TOGETHER:
        values = torch.linalg.vector_norm(flat, dim=1, dtype=wide)
        return NormBounds(values, (width + 4) * 2.0**-24)
    whole = width - width % _MOST_TOGETHER
    parts = [flat[:, :whole].unflatten(1, (-1, _MOST_TOGETHER))]
    parts += [flat[:, None, whole:]] if whole < width else []
    norms = [torch.linalg.vector_norm(part, dim=2, dtype=wide).to(torch.float64) for part in parts]
    total = torch.linalg.vector_norm(torch.cat(norms, dim=1), dim=1)
    return NormBounds(total, (_MOST_TOGETHER + 8) * 2.0**-24)


def outer_product_bounds(first: Tensor, second: Tensor) -> NormBounds:
    """Return bounds of the norm of every example's outer product, from its two factors."""
    left, right = norm_bounds_of(first), norm_bounds_of(second)
    # Squares of tiny numbers underflow, and the other factor may be large enough to make up for it.
    padding = [math.sqrt(tensor[0].numel()) * _LARGEST_LOST for tensor in (first, second)]
    return NormBounds(
        (left.values.to(torch.float64) + padding[0])
        * (right.values.to(torch.float64) + padding[1]),
        (1.0 + left.share) * (1.0 + right.share) - 1.0,
    )


def weighted_sum_of(gradients: Tensor, weights: Tensor) -> Tensor:
    """Return ``sum_e weights[e] gradients[e]`` as one matrix-vector product.

    In float32 where gradients have 16 bits, which round a sum by more than one of many adds to it.
    """
    flat = _rows(gradients)
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    return (weights.to(flat.dtype) @ flat).reshape(gradients.shape[1:])


def _rows(gradients: Tensor) -> Tensor:
    """Return every example's gradient as a row, also that of a scalar."""
    return gradients[:, None] if gradients.ndim == 1 else gradients.flatten(1)


def without(held: Tensor, spoilt: Tensor) -> Tensor:
    """Return what is held with zeros for some examples, each of as many rows.

    Parameters
    ----------
    held : Tensor
        Gradients or activations; its first axis is the examples, or their rows one after another.
    spoilt : Tensor, shape (examples,)
        Which ones.
    """
    rows = len(held) // len(spoilt)
    by_row = spoilt if rows == 1 else spoilt.repeat_interleave(rows)
    # Not masked_fill, which copies twice and puts channels that come last in another order.
    return torch.where(by_row.reshape(-1, *[1] * (held.ndim - 1)), 0.0, held)


def trainable(*parameters: nn.Parameter | None) -> tuple[nn.Parameter, ...]:
    """Return those parameters that exist and are to be trained."""
    return tuple(
        parameter for parameter in parameters if parameter is not None and parameter.requires_grad
    )


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
        return {parameter: norm_bounds_of(tensor) for parameter, tensor in self.gradients().items()}

    def weighted_sum(self, weights: Tensor) -> Mapping[nn.Parameter, Tensor]:
        """Return the sum of all examples' gradients, each times its weight."""
        return {
            parameter: weighted_sum_of(tensor, weights)
            for parameter, tensor in self.gradients().items()
        }

    @abc.abstractmethod
    def leave_out(self, spoilt: Tensor) -> None:
        """Set all that is held of some examples to zero, before a sum in which they weigh nothing.

        By selection: zero times infinity is no number, and one of these would be the whole sum's.

        Parameters
        ----------
        spoilt : Tensor, shape (examples,)
            Which ones.
        """

    @abc.abstractmethod
    def forget(self) -> None:
        """Let go of what is held for the sum; nothing else is called afterwards."""


class MeasuredUse(NamedTuple):
    """The use of a layer's parameters, and bounds of the norms of every example's gradient.

    There are no bounds where a parameter has other uses too, whose gradients are to be added first.
    """

    name: str
    use: LayerUse
    norm_bounds: dict[nn.Parameter, NormBounds] | None


class KeptGradients(LayerUse):
    """A layer whose gradients are small enough to be kept: norms and sums are read off them.

    Parameters
    ----------
    gradients : mapping of Parameter to Tensor
        Of every example.
    """

    def __init__(self, gradients: PerExample) -> None:
        self._gradients = gradients

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters whose gradients were kept."""
        return tuple(self._gradients)

    def gradients(self) -> PerExample:
        """Return what was kept."""
        return self._gradients

    def add(self, other: "KeptGradients") -> None:
        """Add what another use has kept."""
        for parameter, tensor in other.gradients().items():
            known = self._gradients.get(parameter)
            self._gradients[parameter] = tensor if known is None else known + tensor

    def leave_out(self, spoilt: Tensor) -> None:
        """Set gradients to zero."""
        self._gradients = {
            parameter: without(tensor, spoilt) for parameter, tensor in self._gradients.items()
        }

    def forget(self) -> None:
        """Let go of the gradients."""
        self._gradients = {}
