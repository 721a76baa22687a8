"""Linear layers, on vectors and on sequences."""

import torch
from torch import Tensor, nn

from matrixdp.training.layers.gram import gram, norms_from_grams
from matrixdp.training.layers.use import LayerUse, PerExample, squared_norms_of, trainable

__all__ = ["LinearUse"]


class LinearUse(LayerUse):
    """A linear layer: at position t of an example the weight gradient is ``g_t x_t^T``.

    Parameters
    ----------
    weight : Parameter, shape (out, in)
        The weight.
    bias : Parameter or None
        The bias, if there is one.
    inputs, outputs : Tensor, shapes (examples, positions, in) and (examples, positions, out)
        What went in, and the gradients of what came out.
    """

    def __init__(
        self, weight: nn.Parameter, bias: nn.Parameter | None, inputs: Tensor, outputs: Tensor
    ) -> None:
        self._weight = weight
        self._bias = bias
        self._inputs = inputs.to(outputs.dtype)
        self._outputs = outputs

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight and bias, as far as they are trained."""
        return trainable(self._weight, self._bias)

    def gradients(self) -> PerExample:
        """Return ``sum_t g_t x_t^T``, and ``sum_t g_t`` for the bias."""
        result: PerExample = {}
        if self._weight.requires_grad:
            product = torch.bmm(self._outputs.transpose(1, 2), self._inputs)
            result[self._weight] = product.to(torch.float32)
        return result | self._bias_gradients()

    def squared_norms(self) -> PerExample:
        """Return the squared norms by the cheapest of three ways."""
        result = {bias: squared_norms_of(part) for bias, part in self._bias_gradients().items()}
        if not self._weight.requires_grad:
            return result
        positions = self._inputs.shape[1]
        width, height = self._inputs.shape[2], self._outputs.shape[2]
        if positions == 1:
            # One outer product: its norm is the product of the norms.
            norms = squared_norms_of(self._inputs) * squared_norms_of(self._outputs)
        elif positions * (width + height) <= width * height:
            inner = gram(self._inputs), gram(self._outputs)
            norms = norms_from_grams(*inner, terms=width + height)
        else:
            product = torch.bmm(self._outputs.transpose(1, 2), self._inputs)
            norms = squared_norms_of(product.to(torch.float32))
        return {self._weight: norms} | result

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return ``sum_e w_e sum_t g_t x_t^T`` as one product over examples and positions."""
        scaled = self._outputs * weights.to(self._outputs.dtype)[:, None, None]
        result: PerExample = {}
        if self._weight.requires_grad:
            product = scaled.flatten(0, 1).T @ self._inputs.flatten(0, 1)
            result[self._weight] = product.to(torch.float32)
        if self._bias is not None and self._bias.requires_grad:
            result[self._bias] = scaled.sum((0, 1), dtype=torch.float32)
        return result

    def _bias_gradients(self) -> PerExample:
        if self._bias is None or not self._bias.requires_grad:
            return {}
        return {self._bias: self._outputs.sum(1, dtype=torch.float32)}
