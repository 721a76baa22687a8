r"""Convolutions in one and two dimensions, without ever unfolding all patches.

At output position t the weight meets the patch of input pixels ``t * stride + offset * dilation``,
one for each offset in the kernel, and an example's weight gradient is ``sum_t g_t patch_t^T``.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.kernels.geometry import Geometry, geometry_and_sides
from matrixdp.training.layers.precision import factor_rounding
from matrixdp.training.layers.shifted_gram import norms_of_patches
from matrixdp.training.layers.tall_images import TallImages, aligned
from matrixdp.training.layers.use import (
    LayerUse,
    PerExample,
    norm_bounds_of,
    trainable,
    weighted_sum_of,
    without,
)

if TYPE_CHECKING:
    from matrixdp.training.kernels.fused_products import FusedProducts

__all__ = ["ConvolutionUse"]

# Gram matrices grow with the square of the positions: beyond this the gradients are cheaper.
_MOST_GRAM_POSITIONS = 256
# How many multiplications a GPU forms in a gradient, in the time that one for a Gram matrix takes.
_FUSED_ADVANTAGE = 4
# Products of fewer multiplications for an example are not worth compiling a kernel for their shape.
_LEAST_FUSED_WORK = 1 << 15
# Gradients of a layer are kept between norm and sum if they take no more than this.
_MOST_KEPT_BYTES = 1 << 29
# What is copied at a time while gradients are formed.
_MOST_COPIED_BYTES = 1 << 27


def _multiply(left: Tensor, right: Tensor, result: Tensor) -> None:
    """Write products of matrices where they are to be kept: by example and group."""
    if left.is_cuda and left.dtype == result.dtype and result.shape[1] == 1:
        torch.bmm(left, right, out=result[:, 0])
    else:
        # A CPU takes longer to write products into parts of a larger tensor than to copy them.
        result.copy_(torch.bmm(left, right).view(result.shape))


def _fused_products(
    inputs: Tensor, outputs: Tensor, geometry: Geometry, examples: int
) -> "FusedProducts | None":
    """Return the kernel that forms the gradients on a GPU, if it takes this convolution."""
    work = outputs[0].numel() * inputs.shape[1] * math.prod(geometry.kernel)
    if not outputs.is_cuda or work < _LEAST_FUSED_WORK:
        return None
    # Builds of PyTorch for the CPU come without Triton.
    from matrixdp.training.kernels.fused_products import FusedProducts, can_fuse  # noqa: PLC0415

    if not can_fuse(inputs, outputs, geometry, len(inputs) // examples):
        return None
    return FusedProducts(inputs, outputs, geometry, examples)


def _selected_rows(outputs: Tensor, weights: Tensor) -> Tensor:
    """Return rows times their weights; a row of weight zero is zero, whatever it holds."""
    if outputs.is_cuda:
        from matrixdp.training.kernels.fused_scaling import can_scale, scaled_rows  # noqa: PLC0415

        if can_scale(outputs):
            return scaled_rows(outputs, weights)
    scale = weights[:, None, None, None]
    return torch.where(scale == 0.0, 0.0, outputs * scale)


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
        # torch declares them as tensors; `layer_uses` has seen that they are parameters
        self._weight = cast("nn.Parameter", module.weight)
        self._bias = cast("nn.Parameter | None", module.bias)
        self._examples = examples
        self._outputs = outputs.unsqueeze(2) if flat else outputs
        image = inputs.unsqueeze(2) if flat else inputs
        self._geometry, sides = geometry_and_sides(module, self._weight.shape[2:])
        if module.padding_mode != "zeros":
            image = functional.pad(image, sides, mode=module.padding_mode)
            sides = [0, 0, 0, 0]
        self._sides = sides
        self._fused = _fused_products(image, self._outputs, self._geometry, examples)
        self._inputs = image.to(outputs.dtype) if self._fused is None else self._fused.inputs
        self._kept: Tensor | None = None
        self._again = False  # whether gradients are too large to be kept, and are formed twice
        self._selects = False  # whether what weighs nothing may not be multiplied by that

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """Weight and bias, as far as they are trained."""
        return trainable(self._weight, self._bias)

    def gradients(self) -> PerExample:
        """Return the gradient of each example."""
        result: PerExample = {}
        if self._weight.requires_grad:
            if self._fused is None:
                products = self._products(slice(0, self._examples))
            else:
                products = self._fused.bounds_and_products()[1]
            result[self._weight] = self._in_order(products)
        return result | self._bias_gradients

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return bounds of the norms, from Gram matrices or from the gradients."""
        result = {bias: norm_bounds_of(tensor) for bias, tensor in self._bias_gradients.items()}
        if not self._weight.requires_grad:
            return result
        if self._gram_is_cheaper():
            rounding = factor_rounding(self._outputs)
            bounds = norms_of_patches(self._inputs, self._outputs, self._geometry, rounding)
        else:
            bounds = self._bounds_of_products()
        return {self._weight: bounds} | result

    def _bounds_of_products(self) -> NormBounds:
        """Form the gradients and return bounds of their norms; keep them if they are small."""
        if self._fused is not None:
            if not self._is_small():
                self._again = True
                return self._fused.bounds()
            bounds, self._kept = self._fused.bounds_and_products()
            self._let_go()
            return bounds
        if self._examples * self._product_bytes <= _MOST_KEPT_BYTES:
            self._kept = self._products(slice(0, self._examples))
            self._let_go()
            return norm_bounds_of(self._kept)
        self._again = True
        parts = [norm_bounds_of(self._products(part)) for part in self._parts()]
        return NormBounds(torch.cat([part.values for part in parts]), parts[0].share)

    def _is_small(self) -> bool:
        """Return whether gradients are kept where the kernel could soon form them again."""
        images = self._inputs.nbytes + self._outputs.nbytes
        return self._examples * self._product_bytes <= max(images, _MOST_KEPT_BYTES // 2)

    def _let_go(self) -> None:
        """Let go of what is not needed again, and large where gradients are kept."""
        self._inputs = self._outputs = self._weight.new_empty(0)
        self._fused = None

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the sum from gradients, or by the ordinary weight gradient of torch."""
        result = {
            bias: weighted_sum_of(tensor, weights) for bias, tensor in self._bias_gradients.items()
        }
        if not self._weight.requires_grad:
            return result
        if self._kept is not None:
            total = self._sum_of_products(self._kept, weights)
        elif self._again and self._fused is not None:
            total = self._fused_sum(self._fused, weights, scaled=False)
        elif self._again:
            # The very numbers whose norms were taken: large terms that cancel would leave another
            # remainder in the order of additions of torch, and no norm bounds that.
            total = torch.zeros_like(self._weight, dtype=torch.float32)
            for part in self._parts():
                total += self._sum_of_products(self._products(part), weights[part])
        elif self._fused is not None and self._sums_by_kernel:
            total = self._fused_sum(self._fused, weights, scaled=True)
        else:
            total = self._scaled_weight_gradient(weights)
        return {self._weight: total} | result

    @property
    def _sums_by_kernel(self) -> bool:
        """Whether the fused kernel forms the sum, too."""
        # Of numbers of 16 bits, torch would round the sum to them.
        return self._fused is not None and (self._again or self._outputs.element_size() < 4)

    @cached_property
    def _bias_gradients(self) -> PerExample:
        if self._bias is None or not self._bias.requires_grad:
            return {}
        sums = self._outputs.sum((2, 3), dtype=torch.float32)
        if not self._one_view:
            sums = sums.unflatten(0, (self._examples, -1)).sum(1)
        return {self._bias: sums}

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
        if self._fused is not None:
            direct //= _FUSED_ADVANTAGE
        return max(pixels, positions) <= _MOST_GRAM_POSITIONS and grams <= direct

    @property
    def _product_bytes(self) -> int:
        """How much memory the gradient of one example takes, in float32."""
        return 4 * self._weight.numel()

    def _parts(self) -> Iterator[slice]:
        """Return the examples in parts whose gradients fit into memory together."""
        together = max(1, _MOST_KEPT_BYTES // self._product_bytes)
        for start in range(0, self._examples, together):
            yield slice(start, min(start + together, self._examples))

    def _sum_of_products(self, products: Tensor, weights: Tensor) -> Tensor:
        return self._in_order(weighted_sum_of(products, weights)[None])[0]

    def _fused_sum(self, fused: "FusedProducts", weights: Tensor, *, scaled: bool) -> Tensor:
        return self._in_order(fused.weighted_sum(weights, scaled=scaled)[None])[0]

    def _products(self, examples: slice) -> Tensor:
        """Return gradients of some examples, of shape (examples, kernel rows, groups, out, rest).

        The rest is kernel columns times the channels of a group. The inputs are copied once for
        each column of the kernel, not for each of its entries; its rows are slices of that copy.
        """
        shape, made = self._geometry, self._outputs.shape[1]
        views = len(self._inputs) // self._examples
        copied = self._inputs[0].nbytes * shape.kernel[1] * views
        together = max(1, _MOST_COPIED_BYTES // copied)
        simple = shape.groups == 1 and shape.stride == (1, 1)
        form = self._products_by_rows if simple else self._products_by_pixels
        width = shape.kernel[1] * self._inputs.shape[1] // shape.groups
        products = torch.empty(
            *(examples.stop - examples.start, shape.kernel[0]),
            *(shape.groups, made // shape.groups, width),
            dtype=torch.float32,
            device=self._outputs.device,
        )
        for start in range(examples.start, examples.stop, together):
            stop = min(start + together, examples.stop)
            image_products = products[start - examples.start : stop - examples.start]
            form(slice(start * views, stop * views), image_products)
        return products

    def _products_by_rows(self, part: slice, products: Tensor) -> None:
        """Form gradients where each output row is a slice of an input row: stride one, one group.

        With rows of equal length for input and output, a shift down by a row is a shift of the
        flattened image by that length, so each row of the kernel is a view of one copy. The views
        of an example form one tall image; between them lie rows whose gradients are zero.
        """
        inputs, outputs, shape = self._inputs[part], self._outputs[part], self._geometry
        views = len(self._inputs) // self._examples
        channels_last = inputs.stride(1) == 1 and inputs.shape[1] > 1
        tall = TallImages(
            examples=len(inputs) // views,
            views=views,
            rows=inputs.shape[2] + self._sides[2] + self._sides[3],
            length=aligned(outputs.shape[3], inputs, channels_last=channels_last),
            channels_last=channels_last,
        )
        image = tall.zeros(inputs, shape.kernel[1] * inputs.shape[1])
        by_column = image.unflatten(2, (shape.kernel[1], -1))
        down = slice(self._sides[2], self._sides[2] + inputs.shape[2])
        source = inputs.unflatten(0, (-1, views))
        for j in range(shape.kernel[1]):
            across, columns = shape.met(1, j, inputs.shape[3], outputs.shape[3])
            by_column[:, :, j, :, down, across] = source[..., columns]
        gradient = tall.embedded(outputs)
        # Below the last row of the last view all gradients are zero.
        end = ((tall.views - 1) * tall.rows + outputs.shape[2]) * tall.length
        flat = tall.flattened(image)
        for i in range(shape.kernel[0]):
            start = i * shape.dilation[0] * tall.length
            met = flat[..., start : start + end]
            _multiply(gradient[..., :end], met.transpose(1, 2), products[:, i])

    def _products_by_pixels(self, part: slice, products: Tensor) -> None:
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
        for i in range(shape.kernel[0]):
            met = columns[:, shape.window(0, i, height)].unflatten(4, (groups, -1))
            met = met.unflatten(0, (-1, views)).permute(0, 5, 1, 2, 3, 4, 6)
            met = met.flatten(5).flatten(2, 4).flatten(0, 1)  # (examples groups, positions, rest)
            _multiply(gradient, met, products[:, i])

    def _in_order(self, products: Tensor) -> Tensor:
        """Return gradients in the order of the parameter's axes, examples first."""
        by_axis = products.unflatten(4, (self._geometry.kernel[1], -1))
        # (examples, kernel rows, groups, out, kernel columns, channels)
        ordered = by_axis.permute(0, 2, 3, 5, 1, 4).flatten(1, 2)
        return ordered.reshape(len(products), *self._weight.shape)

    def _scaled_weight_gradient(self, weights: Tensor) -> Tensor:
        """Scale the output gradients and let torch form the weight gradient of the whole batch."""
        inputs, scaled = self._scaled(weights)
        weight, padding = self._weight.detach().to(scaled.dtype), self._geometry.padding
        if self._sides[0::2] != self._sides[1::2]:
            inputs, padding = functional.pad(inputs, self._sides), (0, 0)
        gradient = torch.ops.aten.convolution_backward(
            *(scaled, inputs, weight.reshape(*weight.shape[:2], *self._geometry.kernel), None),
            *(self._geometry.stride, padding, self._geometry.dilation),
            *(False, (0, 0), self._geometry.groups, (False, True, False)),
        )[1]
        return gradient.reshape(weight.shape).to(torch.float32)

    def _scaled(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs, and the output gradients of every example times its weight."""
        # Not in 16 bits: torch would round the sum to them, by more than what one of many adds.
        wide = torch.promote_types(self._outputs.dtype, torch.float32)
        scale = weights.to(wide)
        if not self._one_view:
            scale = scale.repeat_interleave(len(self._inputs) // self._examples)
        # Not in place: other layers may keep the same tensor, where branches meet.
        scaled = (
            _selected_rows(self._outputs, scale)
            if self._selects
            else self._outputs * scale[:, None, None, None]
        )
        return self._inputs.to(wide), scaled

    def leave_out(self, spoilt: Tensor) -> None:
        """Set inputs, output gradients and what was made of them to zero."""
        self._bias_gradients = {
            bias: without(tensor, spoilt) for bias, tensor in self._bias_gradients.items()
        }
        if self._kept is not None:
            self._kept = without(self._kept, spoilt)
            return
        if self._sums_by_kernel:
            return  # which leaves out whatever weighs nothing
        self._inputs = without(self._inputs, spoilt)
        if self._again:
            self._outputs = without(self._outputs, spoilt)
        else:
            self._selects = True  # while they are scaled, which saves a pass over them

    def forget(self) -> None:
        """Let go of everything that is as large as the activations."""
        self._let_go()
        self._kept = None
