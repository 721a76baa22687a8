r"""Convolutions in one and two dimensions, without ever unfolding all patches.

At output position t the weight meets the patch of input pixels ``t * stride + offset * dilation``,
one for each offset in the kernel, and an example's weight gradient is ``sum_t g_t patch_t^T``.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.gram import gram, norms_from_grams
from matrixdp.training.layers.use import (
    LayerUse,
    PerExample,
    squared_norms_of,
    trainable,
    weighted_sum_of,
)

__all__ = ["ConvolutionUse"]

# Gram matrices grow with the square of the positions: beyond this the gradients are cheaper.
_MOST_GRAM_POSITIONS = 256
# Gradients of a layer are kept between norm and sum if they take no more than this.
_MOST_KEPT_BYTES = 1 << 29
# What is copied at a time while forming gradients.
_MOST_COPIED_BYTES = 1 << 28


@dataclass(frozen=True)
class _Geometry:
    """The shape of a convolution in two dimensions: (vertical, horizontal) each."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def window(self, axis: int, offset: int, length: int) -> slice:
        """Return the input positions that an offset of the kernel meets along an axis."""
        start = offset * self.dilation[axis]
        return slice(start, start + self.stride[axis] * (length - 1) + 1, self.stride[axis])


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return sizes in two dimensions; a convolution in one has a height of one."""
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


class ConvolutionUse(LayerUse):
    """A convolution, its inputs padded already.

    Parameters
    ----------
    module : nn.Conv1d or nn.Conv2d
        The layer.
    inputs, outputs : Tensor
        What went in, and the gradients of what came out; examples and their views first.
    examples : int
        How many examples; each owns as many consecutive rows.
    """

    def __init__(
        self, module: nn.Conv1d | nn.Conv2d, inputs: Tensor, outputs: Tensor, examples: int
    ) -> None:
        flat = isinstance(module, nn.Conv1d)
        # One dimension is two with a height of one.
        self._inputs = (inputs.unsqueeze(2) if flat else inputs).to(outputs.dtype)
        self._outputs = outputs.unsqueeze(2) if flat else outputs
        self._module = module
        self._examples = examples
        self._geometry = _Geometry(
            kernel=_pair(module.kernel_size),
            stride=_pair(module.stride),
            dilation=_pair(module.dilation),
            groups=module.groups,
        )
        self._kept: Tensor | None = None

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight and bias, as far as they are trained."""
        return trainable(self._module.weight, self._module.bias)

    def gradients(self) -> PerExample:
        """Return the gradient of each example."""
        result: PerExample = {}
        if self._module.weight.requires_grad:
            result[self._module.weight] = self._in_order(self._products())
        return result | self._bias_gradients

    def squared_norms(self) -> PerExample:
        """Return the squared norms, from Gram matrices or from the gradients."""
        result = {bias: squared_norms_of(part) for bias, part in self._bias_gradients.items()}
        if not self._module.weight.requires_grad:
            return result
        if self._gram_is_cheaper():
            norms = self._norms_by_gram()
        else:
            products = self._products()
            norms = squared_norms_of(products)
            if products.nbytes <= _MOST_KEPT_BYTES:
                self._kept = products
        return {self._module.weight: norms} | result

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the sum from kept gradients, or by the ordinary weight gradient of torch."""
        result = {
            bias: weighted_sum_of(part, weights) for bias, part in self._bias_gradients.items()
        }
        if not self._module.weight.requires_grad:
            return result
        if self._kept is not None:
            total = self._in_order(weighted_sum_of(self._kept, weights)[None])[0]
        else:
            total = self._scaled_weight_gradient(weights)
        return {self._module.weight: total} | result

    @cached_property
    def _bias_gradients(self) -> PerExample:
        bias = self._module.bias
        if bias is None or not bias.requires_grad:
            return {}
        sums = self._outputs.sum((2, 3), dtype=torch.float32)
        return {bias: sums.reshape(self._examples, -1, sums.shape[1]).sum(1)}

    @cached_property
    def _padded(self) -> Tensor:
        mode = "constant" if self._module.padding_mode == "zeros" else self._module.padding_mode
        sides = list(self._module._reversed_padding_repeated_twice)  # noqa: SLF001
        return functional.pad(self._inputs, sides + [0] * (4 - len(sides)), mode=mode)

    @property
    def _positions(self) -> int:
        return self._outputs.shape[2] * self._outputs.shape[3]

    def _gram_is_cheaper(self) -> bool:
        """Compare the multiplications; several views of an example multiply its positions."""
        one_view = len(self._inputs) == self._examples
        if not (one_view and self._geometry.groups == 1):
            return False
        pixels = self._inputs.shape[2] * self._inputs.shape[3]
        channels, made = self._inputs.shape[1], self._outputs.shape[1]
        offsets = self._geometry.kernel[0] * self._geometry.kernel[1]
        grams = pixels**2 * channels + self._positions**2 * (made + offsets)
        direct = self._positions * channels * made * offsets
        return max(pixels, self._positions) <= _MOST_GRAM_POSITIONS and grams <= direct

    def _norms_by_gram(self) -> Tensor:
        r"""Return norms from the Gram matrices of pixels and of output gradients.

        The Gram matrix of *patches* is a sum of shifted copies of that of *pixels*, one for each
        offset: ``K[t, s] = sum_o P[t stride + o, s stride + o]``, with zeros outside.
        """
        pixels = self._padded.flatten(2).transpose(1, 2)
        height, width = self._padded.shape[2:]
        shape, rows = self._geometry, self._outputs.shape[2:]
        inner = gram(pixels).unflatten(1, (height, width)).unflatten(3, (height, width))
        patches = None
        for i in range(shape.kernel[0]):
            down = shape.window(0, i, rows[0])
            for j in range(shape.kernel[1]):
                across = shape.window(1, j, rows[1])
                shifted = inner[:, down, across, down, across]
                patches = shifted.clone() if patches is None else patches.add_(shifted)
        outer = gram(self._outputs.flatten(2).transpose(1, 2))
        terms = pixels.shape[2] + shape.kernel[0] * shape.kernel[1] + self._outputs.shape[1]
        return norms_from_grams(patches.reshape(outer.shape), outer, terms)  # type: ignore[union-attr]

    def _products(self) -> Tensor:
        """Return every example's gradient, of shape (examples, kernel rows, groups, out, rest).

        The rest is kernel columns times the channels of a group. The inputs are copied once for
        each column of the kernel, not for each of its entries; its rows are slices of that copy.
        """
        per_row = self._padded[0].nbytes * self._geometry.kernel[1]
        views = len(self._inputs) // self._examples
        together = max(1, _MOST_COPIED_BYTES // (per_row * views))
        parts = [
            self._products_of(slice(start * views, (start + together) * views), views)
            for start in range(0, self._examples, together)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _products_of(self, rows: slice, views: int) -> Tensor:
        shape, groups = self._geometry, self._geometry.groups
        pixels = self._padded[rows].permute(0, 2, 3, 1)
        height, width = self._outputs.shape[2:]
        columns = torch.stack(
            [pixels[:, :, shape.window(1, j, width)] for j in range(shape.kernel[1])], dim=3
        )
        gradient = self._outputs[rows].unflatten(1, (groups, -1))
        gradient = gradient.unflatten(0, (-1, views)).permute(0, 2, 3, 1, 4, 5)
        gradient = gradient.flatten(3).flatten(0, 1)  # (examples groups, out, positions)
        products = []
        for i in range(shape.kernel[0]):
            met = columns[:, shape.window(0, i, height)].unflatten(4, (groups, -1))
            met = met.unflatten(0, (-1, views)).permute(0, 5, 1, 2, 3, 4, 6)
            met = met.flatten(5).flatten(2, 4).flatten(0, 1)  # (examples groups, positions, rest)
            products.append(torch.bmm(gradient, met).to(torch.float32).unflatten(0, (-1, groups)))
        return torch.stack(products, dim=1)

    def _in_order(self, products: Tensor) -> Tensor:
        """Return gradients in the order of the parameter's axes."""
        by_axis = products.unflatten(4, (self._geometry.kernel[1], -1))
        # (examples, kernel rows, groups, out, kernel columns, channels)
        ordered = by_axis.permute(0, 2, 3, 5, 1, 4).flatten(1, 2)
        return ordered.reshape(len(products), *self._module.weight.shape)

    def _scaled_weight_gradient(self, weights: Tensor) -> Tensor:
        views = len(self._inputs) // self._examples
        scale = weights.to(self._outputs.dtype).repeat_interleave(views)
        weight = self._module.weight.reshape(
            *self._module.weight.shape[:2], *self._geometry.kernel
        ).to(self._outputs.dtype)
        gradient = torch.ops.aten.convolution_backward(
            self._outputs * scale[:, None, None, None],
            self._padded,
            weight,
            None,
            self._geometry.stride,
            (0, 0),
            self._geometry.dilation,
            False,
            (0, 0),
            self._geometry.groups,
            (False, True, False),
        )[1]
        return gradient.reshape(self._module.weight.shape).to(torch.float32)
