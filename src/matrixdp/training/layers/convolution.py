r"""Convolutions in one and two dimensions, without ever unfolding all patches.

At output position t the weight meets the patch of input pixels ``t * stride + offset * dilation``,
one for each offset in the kernel, and an example's weight gradient is ``sum_t g_t patch_t^T``.
"""

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.shifted_gram import Geometry, norms_of_patches
from matrixdp.training.layers.use import (
    LayerUse,
    NormBounds,
    PerExample,
    norm_bounds_of,
    trainable,
    weighted_sum_of,
)

__all__ = ["ConvolutionUse"]

# Gram matrices grow with the square of the positions: beyond this the gradients are cheaper.
_MOST_GRAM_POSITIONS = 256
# Gradients of a layer are kept between norm and sum if they take no more than this.
_MOST_KEPT_BYTES = 1 << 29
# What is copied at a time while gradients are formed.
_MOST_COPIED_BYTES = 1 << 27
# Fast matrix products want rows that start at multiples of 16 bytes.
_ALIGNMENT_BYTES = 16


def _pair(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Return sizes in two dimensions; a convolution in one has a height of one."""
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _zeros_channels_last(like: Tensor, axes: tuple[int, int, int, int, int]) -> Tensor:
    """Return zeros (rows, columns, channels, height, width), with columns and channels last."""
    rows, columns, channels, height, width = axes
    zeros = like.new_zeros(rows, height, width, columns, channels)
    return zeros.permute(0, 3, 4, 1, 2)


class ConvolutionUse(LayerUse):
    """A convolution.

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
        self._module = module
        self._examples = examples
        self._outputs = outputs.unsqueeze(2) if flat else outputs
        image = (inputs.unsqueeze(2) if flat else inputs).to(outputs.dtype)
        # left, right, top, bottom; torch puts what "same" cannot halve after the last column
        sides = [*module._reversed_padding_repeated_twice, 0, 0][:4]  # noqa: SLF001
        if module.padding_mode != "zeros":
            image = functional.pad(image, sides, mode=module.padding_mode)
            sides = [0, 0, 0, 0]
        self._inputs = image
        self._geometry = Geometry(
            kernel=_pair(module.kernel_size),
            stride=_pair(module.stride),
            dilation=_pair(module.dilation),
            padding=(sides[2], sides[0]),
            groups=module.groups,
        )
        self._sides = sides
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

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return bounds of the norms, from Gram matrices or from the gradients."""
        result = {bias: norm_bounds_of(part) for bias, part in self._bias_gradients.items()}
        if not self._module.weight.requires_grad:
            return result
        if self._gram_is_cheaper():
            bounds = norms_of_patches(self._inputs, self._outputs, self._geometry)
        else:
            products = self._products()
            bounds = norm_bounds_of(products)
            if products.nbytes <= _MOST_KEPT_BYTES:
                self._kept = products
                # Neither is needed again, and both are large where gradients are kept.
                self._inputs = self._outputs = products.new_empty(0)
        return {self._module.weight: bounds} | result

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

    @property
    def _one_view(self) -> bool:
        return len(self._inputs) == self._examples

    def _gram_is_cheaper(self) -> bool:
        """Compare the multiplications; several views of an example multiply its positions."""
        if not (self._one_view and self._geometry.groups == 1):
            return False
        pixels = self._inputs.shape[2] * self._inputs.shape[3]
        positions = self._outputs.shape[2] * self._outputs.shape[3]
        channels, made = self._inputs.shape[1], self._outputs.shape[1]
        offsets = self._geometry.kernel[0] * self._geometry.kernel[1]
        grams = pixels**2 * channels + positions**2 * (made + offsets)
        direct = positions * channels * made * offsets
        return max(pixels, positions) <= _MOST_GRAM_POSITIONS and grams <= direct

    def _products(self) -> Tensor:
        """Return every example's gradient, of shape (examples, kernel rows, groups, out, rest).

        The rest is kernel columns times the channels of a group. The inputs are copied once for
        each column of the kernel, not for each of its entries; its rows are slices of that copy.
        """
        views = len(self._inputs) // self._examples
        copied = self._inputs[0].nbytes * self._geometry.kernel[1] * views
        together = max(1, _MOST_COPIED_BYTES // copied)
        simple = self._one_view and self._geometry.groups == 1 and self._geometry.stride == (1, 1)
        form = self._products_by_rows if simple else self._products_by_pixels
        parts = [
            form(slice(start * views, (start + together) * views))
            for start in range(0, self._examples, together)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _products_by_rows(self, part: slice) -> Tensor:
        """Form gradients where each output row is a slice of an input row: stride one, one group.

        With rows of equal length for input and output, a shift down by a row is a shift of the
        flattened image by that length, so each row of the kernel is a view of one copy.
        """
        inputs, outputs, shape = self._inputs[part], self._outputs[part], self._geometry
        height, width = outputs.shape[2:]
        channels_last = inputs.stride(1) == 1 and inputs.shape[1] > 1
        # Channels last starts a pixel at a multiple of its channels; otherwise rows are lengthened.
        step = 1 if channels_last else _ALIGNMENT_BYTES // inputs.element_size()
        length = -(-width // step) * step
        rows = inputs.shape[2] + self._sides[2] + self._sides[3]
        axes = (len(inputs), shape.kernel[1], inputs.shape[1], rows, length)
        image = _zeros_channels_last(inputs, axes) if channels_last else inputs.new_zeros(axes)
        for j in range(shape.kernel[1]):
            across, columns = shape.met(1, j, inputs.shape[3], width)
            down = slice(self._sides[2], self._sides[2] + inputs.shape[2])
            image[:, j, :, down, across] = inputs[..., columns]
        flat = image.flatten(3).flatten(1, 2)  # (examples, columns channels, rows length)
        gradient = functional.pad(outputs, (0, length - width)) if length > width else outputs
        products = []
        for i in range(shape.kernel[0]):
            start = i * shape.dilation[0] * length
            met = flat[..., start : start + height * length]
            product = torch.bmm(gradient.flatten(2), met.transpose(1, 2))
            products.append(product.to(torch.float32))
        return torch.stack(products, dim=1)[:, :, None]

    def _products_by_pixels(self, part: slice) -> Tensor:
        """Form gradients of any convolution, with the channels of a pixel together."""
        shape, groups = self._geometry, self._geometry.groups
        views = len(self._inputs) // self._examples
        pixels = functional.pad(self._inputs[part], self._sides).permute(0, 2, 3, 1)
        height, width = self._outputs.shape[2:]
        columns = torch.stack(
            [pixels[:, :, shape.window(1, j, width)] for j in range(shape.kernel[1])], dim=3
        )
        gradient = self._outputs[part].unflatten(1, (groups, -1))
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
        """Scale the output gradients and let torch form the weight gradient of the whole batch."""
        views = len(self._inputs) // self._examples
        scale = weights.to(torch.float32).repeat_interleave(views)[:, None, None, None]
        # Not in place: other layers may have recorded the same tensor, where branches meet.
        scaled = (self._outputs * scale).to(self._outputs.dtype)
        weight = self._module.weight.detach().to(scaled.dtype)
        inputs, padding = self._inputs, self._geometry.padding
        if self._sides[0::2] != self._sides[1::2]:
            inputs, padding = functional.pad(inputs, self._sides), (0, 0)
        gradient = torch.ops.aten.convolution_backward(
            *(scaled, inputs, weight.reshape(*weight.shape[:2], *self._geometry.kernel), None),
            *(self._geometry.stride, padding, self._geometry.dilation),
            *(False, (0, 0), self._geometry.groups, (False, True, False)),
        )[1]
        return gradient.reshape(weight.shape).to(torch.float32)
