"""Linear layers, on vectors and on sequences."""

from functools import cached_property

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers.gram import gram, gram_bounds
from matrixdp.training.layers.precision import factor_rounding, wide_product
from matrixdp.training.layers.use import (
    LayerUse,
    PerExample,
    norm_bounds_of,
    outer_product_bounds,
    trainable,
    weighted_sum_of,
    without,
)

__all__ = ["LinearUse", "gram_is_less"]

# So many numbers of a gradient are held for an example: never those of a table of words.
_MOST_KEPT = 2**24


def gram_is_less(positions: int, width: int, height: int) -> bool:
    """Return whether Gram matrices are less work than the gradients of examples, or memory."""
    return positions * (width + height) <= width * height or width * height > _MOST_KEPT


class LinearUse(LayerUse):
    """A linear layer: at position t of an example the weight gradient is ``g_t x_t^T``.

    Parameters
    ----------
    weight : Parameter, shape (out, in), or (in, out) if transposed
        The weight.
    bias : Parameter or None
        The bias, if there is one.
    inputs, outputs : Tensor, shapes (examples, positions, in) and (examples, positions, out)
        What went in, and the gradients of what came out.
    transposed : bool, optional
        Whether the weight has inputs by outputs, as GPT-2's.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        bias: nn.Parameter | None,
        inputs: Tensor,
        outputs: Tensor,
        *,
        transposed: bool = False,
    ) -> None:
        self.weight = weight
        self._transposed = transposed
        self._bias = bias
        self._inputs = inputs.to(outputs.dtype)
        self._outputs = outputs
        self._kept: Tensor | None = None

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight and bias, as far as they are trained."""
        return trainable(self.weight, self._bias)

    @property
    def positions(self) -> int:
        """How many positions an example has."""
        return self._inputs.shape[1]

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return the left and the right factors of the weight's gradient, at every position."""
        pair = self._outputs, self._inputs
        return pair[::-1] if self._transposed else pair

    def gradients(self) -> PerExample:
        """Return ``sum_t g_t x_t^T``, and ``sum_t g_t`` for the bias."""
        result: PerExample = {}
        if self.weight.requires_grad:
            kept = self._products() if self._kept is None else self._kept
            result[self.weight] = kept.mT if self._transposed else kept
        return result | self.bias_gradients

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return bounds of the norms by the cheapest of three ways."""
        positions = self._inputs.shape[1]
        width, height = self._inputs.shape[2], self._outputs.shape[2]
        result = {bias: norm_bounds_of(tensor) for bias, tensor in self.bias_gradients.items()}
        if not self.weight.requires_grad:
            return result
        if positions == 1:
            # Its norm is the product of the norms.
            bounds = outer_product_bounds(self._inputs, self._outputs)
        elif gram_is_less(positions, width, height):
            rounding = factor_rounding(self._outputs)
            bounds = gram_bounds(gram(self._inputs), gram(self._outputs), width + height, rounding)
        else:
            # Here they are smaller than inputs and outputs. The sum is formed from the very numbers
            # whose norms were taken: formed again in another order, large terms that cancel
            # would leave another remainder, which no norm bounds.
            self._kept = self._products()
            self._inputs = self._outputs = self._kept.new_empty(0)
            bounds = norm_bounds_of(self._kept)
        return {self.weight: bounds} | result

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the sum from kept gradients, or as one product over examples and positions."""
        result = {
            bias: weighted_sum_of(tensor, weights) for bias, tensor in self.bias_gradients.items()
        }
        if self._kept is not None:
            total = weighted_sum_of(self._kept, weights)
            result[self.weight] = total.T if self._transposed else total
        elif self.weight.requires_grad:
            # The smaller of the two is scaled.
            left, right = self._outputs, self._inputs
            scale = weights.to(torch.float32)[:, None, None]
            if left.shape[2] <= right.shape[2]:
                left = (left * scale).to(left.dtype)
            else:
                right = (right * scale).to(right.dtype)
            if self._transposed:
                left, right = right, left
            product = wide_product(left.flatten(0, 1).T, right.flatten(0, 1))
            result[self.weight] = product.to(torch.float32)
        return result

    def leave_out(self, spoilt: Tensor) -> None:
        """Set inputs, output gradients and what was made of them to zero."""
        if self._kept is None:
            self._inputs, self._outputs = (
                without(tensor, spoilt) for tensor in (self._inputs, self._outputs)
            )
        else:
            self._kept = without(self._kept, spoilt)
        self.bias_gradients = {
            bias: without(tensor, spoilt) for bias, tensor in self.bias_gradients.items()
        }

    def forget(self) -> None:
        """Let go of everything that is as large as the activations."""
        self._inputs = self._outputs = self.weight.new_empty(0)
        self._kept = None

    def _products(self) -> Tensor:
        return torch.bmm(self._outputs.transpose(1, 2), self._inputs).to(torch.float32)

    @cached_property
    def bias_gradients(self) -> PerExample:
        """The gradients of the bias, if there is one that is trained."""
        if self._bias is None or not self._bias.requires_grad:
            return {}
        outputs = self._outputs
        if outputs.shape[1] == 1:
            return {self._bias: outputs[:, 0].to(torch.float32)}
        return {self._bias: outputs.sum(1, dtype=torch.float32)}
