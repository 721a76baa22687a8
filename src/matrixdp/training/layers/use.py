"""What one use of one layer contributes to the gradients of every example.

A layer is recorded by its input and by the gradient of the losses with respect to its output. The
gradients of its parameters follow from these two, example by example, without another backward
pass: as squared norms where those are cheaper than the gradients, and as sums weighted by example.
"""

import abc
from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = [
    "KeptGradients",
    "LayerUse",
    "PerExample",
    "squared_norms_of",
    "trainable",
    "weighted_sum_of",
]

PerExample = dict[nn.Parameter, Tensor]
"""For each parameter a tensor whose first axis is the examples."""

# So many squares are summed in float32, where each sum is off by at most this share; the sums are
# added up in float64, where nothing of that size is lost.
_TOGETHER = 256
_MARGIN = 1.0 + 2.0 * (_TOGETHER + 4) * 2.0**-24


def squared_norms_of(gradients: Tensor) -> Tensor:
    """Return every example's squared norm, in float64 and rounded up."""
    flat = gradients.flatten(1)
    whole = flat.shape[1] - flat.shape[1] % _TOGETHER
    parts = [flat[:, :whole].unflatten(1, (-1, _TOGETHER))] if whole else []
    parts += [flat[:, None, whole:]] if whole < flat.shape[1] else []
    squares = [torch.linalg.vector_norm(part, dim=2).to(torch.float64).square() for part in parts]
    return torch.cat(squares, dim=1).sum(1) * _MARGIN


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

    def squared_norms(self) -> PerExample:
        """Return an upper bound of every example's squared gradient norm, in float64.

        It bounds the gradient whose weighted sum `weighted_sum` forms, apart from the rounding of
        that sum: whatever a shortcut may have rounded off is added.
        """
        return {parameter: squared_norms_of(part) for parameter, part in self.gradients().items()}

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
