"""A GPU kernel that forms a convolution's gradient for every example, straight from its images.

An example's gradient is a product of two matrices: its output gradients, channels by positions, and
its patches, positions by entries of the kernel. No patch is ever written: a tile of them is read
from the image where the product needs it. The kernel either takes norms, and keeps the gradients
if they are wanted, or forms the same gradients again, number by number, and adds them up.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.kernels.fused_layout import channels_last
from matrixdp.training.kernels.geometry import Geometry

__all__ = ["FusedProducts", "can_fuse"]

# So many programs for each processor of a GPU keep all of them busy until nearly the end.
_PROGRAMS = 4
# What GPUs of data centres have for a program; others have 99 KiB.
_MUCH_SHARED_MEMORY = 160 << 10
# Within an example, offsets are integers of 32 bits.
_MOST_ELEMENTS = 1 << 31


class _Tile(NamedTuple):
    """How much of the products a program forms at a time, and with how many threads."""

    made: int  # output channels
    met: int  # entries of the kernel
    positions: int
    warps: int
    stages: int


def _tile(made: int, entries: int, like: Tensor) -> _Tile:
    """Return a tile for so many output channels and entries of the kernel, as was measured best.

    Both passes over a layer must have the same one, so that they form the same numbers.
    """
    device = torch.cuda.get_device_properties(like.device)
    shared = device.shared_memory_per_block_optin  # type: ignore[attr-defined]
    rows = min(128, max(16, triton.next_power_of_2(made)))
    columns = min(128, max(16, triton.next_power_of_2(entries)))
    warps = 8 if rows * columns > 64 * 128 else 4
    # The largest tiles take 32 KiB a stage.
    stages = 3 if shared >= _MUCH_SHARED_MEMORY else 2
    return _Tile(rows, columns, 32 if like.dtype == torch.float32 else 64, warps, stages)


# Lots have different sizes, and no size is to be compiled for by itself.
@triton.jit(do_not_specialize=["examples", "together"])  # type: ignore[untyped-decorator]
def _form(  # type: ignore[no-untyped-def]  # noqa: PLR0915, PLR0917
    inputs,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    outputs,  # noqa: ANN001
    weights,  # noqa: ANN001
    result,  # noqa: ANN001
    squares,  # noqa: ANN001
    examples,  # noqa: ANN001
    together,  # noqa: ANN001
    input_row,  # noqa: ANN001
    input_channel,  # noqa: ANN001
    input_down,  # noqa: ANN001
    input_across,  # noqa: ANN001
    output_row,  # noqa: ANN001
    output_channel,  # noqa: ANN001
    output_down,  # noqa: ANN001
    output_across,  # noqa: ANN001
    views: tl.constexpr,
    channels: tl.constexpr,
    height: tl.constexpr,
    width: tl.constexpr,
    made_channels: tl.constexpr,
    out_height: tl.constexpr,
    out_width: tl.constexpr,
    kernel_height: tl.constexpr,
    kernel_width: tl.constexpr,
    stride_down: tl.constexpr,
    stride_across: tl.constexpr,
    dilation_down: tl.constexpr,
    dilation_across: tl.constexpr,
    padding_down: tl.constexpr,
    padding_across: tl.constexpr,
    is_kept: tl.constexpr,
    is_sum: tl.constexpr,
    is_scaled: tl.constexpr,
    made_block: tl.constexpr,
    met_block: tl.constexpr,
    position_block: tl.constexpr,
) -> None:
    positions: tl.constexpr = out_height * out_width
    entries: tl.constexpr = kernel_height * kernel_width * channels
    made_tiles: tl.constexpr = (made_channels + made_block - 1) // made_block
    tiles: tl.constexpr = made_tiles * ((entries + met_block - 1) // met_block)
    # Tiles first: programs that run at the same time read the same images.
    tile, chunk = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    made = (tile % made_tiles) * made_block + tl.arange(0, made_block)
    first = (tile // made_tiles) * met_block
    entry = first + tl.arange(0, met_block)
    if channels % met_block == 0:
        # All of the tile has one offset, which spares it a mask of two axes.
        offset = first // channels
        # Triton does not see by itself that this starts at a multiple.
        channel = tl.multiple_of(first % channels, met_block) + tl.arange(0, met_block)
        down = (offset // kernel_width) * dilation_down - padding_down
        across = (offset % kernel_width) * dilation_across - padding_across
    else:
        offset = entry // channels
        channel = entry % channels
        down = ((offset // kernel_width) * dilation_down - padding_down)[None, :]
        across = ((offset % kernel_width) * dilation_across - padding_across)[None, :]
    is_made, is_entry = made < made_channels, entry < entries
    first_example = chunk.to(tl.int64) * together
    count = tl.minimum(together, examples - chunk * together)
    total = tl.zeros([made_block, met_block], dtype=tl.float32)
    # Scaled examples are multiplied as one.
    for number in range(1 if is_scaled else count):
        images = inputs + (first_example + number) * (views * input_row)
        gradients = outputs + (first_example + number) * (views * output_row)
        product = tl.zeros([made_block, met_block], dtype=tl.float32)
        length = (count if is_scaled else 1) * (views * positions)
        for start in range(0, length, position_block):
            index = start + tl.arange(0, position_block)
            row, position = index // positions, index % positions
            y, x = position // out_width, position % out_width
            known = index < length
            far = row.to(tl.int64)
            if is_scaled:
                weight = tl.load(weights + first_example + row // views, mask=known, other=0.0)
                known = known & (weight != 0.0)  # what weighs nothing is not read
            gradient = tl.load(
                (gradients + far * output_row + (y * output_down + x * output_across))[None, :]
                + (made * output_channel)[:, None],
                mask=is_made[:, None] & known[None, :],
                other=0.0,
            )
            if is_scaled:
                gradient = (gradient * weight[None, :]).to(gradient.dtype)
            v = (y * stride_down)[:, None] + down
            u = (x * stride_across)[:, None] + across
            inside = known[:, None] & (v >= 0) & (v < height) & (u >= 0) & (u < width)
            patch = tl.load(
                (images + far * input_row)[:, None]
                + (v * input_down + u * input_across + (channel * input_channel)[None, :]),
                mask=inside & is_entry[None, :],
                other=0.0,
            )
            product = tl.dot(gradient, patch, product, input_precision="tf32")
        if is_scaled:
            total = product
        elif is_sum:
            weight = tl.load(weights + first_example + number)
            # By selection: zero times infinity is no number.
            total += tl.where(weight == 0.0, 0.0, product * weight)
        else:
            offset_of_square = (first_example + number) * tiles + tile
            tl.store(squares + offset_of_square, tl.sum(tl.sum(product * product, axis=1), axis=0))
            if is_kept:
                total = product
    if is_kept or is_sum or is_scaled:
        # Examples, or chunks of them; in each one row of the kernel after another.
        of_row: tl.constexpr = kernel_width * channels
        to = ((entry // of_row) * (made_channels * of_row) + entry % of_row)[None, :]
        to += (made * of_row)[:, None]
        result += chunk.to(tl.int64) * (made_channels * entries)
        tl.store(result + to, total, mask=is_made[:, None] & is_entry[None, :])


def can_fuse(inputs: Tensor, outputs: Tensor, geometry: Geometry, views: int) -> bool:
    """Return whether the kernel takes a convolution, and multiplies as torch would do it."""
    if geometry.groups > 1 or inputs.element_size() > 4 or not _has_tensor_cores(outputs.device):
        return False
    if outputs.dtype == torch.float32:
        # It multiplies in TF32, as torch does in convolutions unless that is switched off.
        if torch.backends.cudnn.conv.fp32_precision != "tf32":  # type: ignore[attr-defined]
            return False
    elif outputs.dtype != torch.bfloat16:
        return False
    return all(views * _reach(tensor) < _MOST_ELEMENTS for tensor in (inputs, outputs))


def _has_tensor_cores(device: torch.device) -> bool:
    """Return whether a GPU multiplies in TF32 and bfloat16: one of NVIDIA's from Ampere on."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def _reach(images: Tensor) -> int:
    """Return how far apart in memory a row's numbers, or the next row, are at the most."""
    sizes = zip(images.shape[1:], images.stride()[1:], strict=True)
    return max(images.stride(0), sum(size * step for size, step in sizes))


class FusedProducts:
    """The gradients of a convolution, formed by the kernel.

    Parameters
    ----------
    inputs, outputs : Tensor, shapes (rows, channels, height, width)
        The input and the gradients of the output, in any order in memory.
    geometry : Geometry
        Of the convolution, which `can_fuse`.
    examples : int
        How many examples; each owns as many consecutive rows.

    Attributes
    ----------
    inputs : Tensor
        The input as it is multiplied, in the type of the output gradients.
    outputs : Tensor
        The output gradients.
    """

    def __init__(self, inputs: Tensor, outputs: Tensor, geometry: Geometry, examples: int) -> None:
        # A tile of patches is shifted by single pixels: where numbers have 16 bits, only channels
        # are read several at a time.
        wide = outputs.itemsize >= 4
        self.inputs = inputs.to(outputs.dtype) if wide else channels_last(inputs, outputs.dtype)
        self.outputs = outputs
        self._geometry = geometry
        self._examples = examples
        made, entries = outputs.shape[1], math.prod(geometry.kernel) * inputs.shape[1]
        self._tile = _tile(made, entries, outputs)
        self._tiles = triton.cdiv(made, self._tile.made) * triton.cdiv(entries, self._tile.met)

    def bounds(self) -> NormBounds:
        """Return bounds of the norms of the very numbers that `weighted_sum` adds up."""
        return self._formed(None)

    def bounds_and_products(self) -> tuple[NormBounds, Tensor]:
        """Return bounds of the norms, and what they are the norms of.

        The gradients have the shape (examples, kernel rows, 1, out, kernel columns * channels); as
        in all that follows, they are in float32.
        """
        products = self._gradients(self._examples)
        return self._formed(products), products

    def weighted_sum(self, weights: Tensor, *, scaled: bool) -> Tensor:
        """Return the sum of every example's gradient times its weight, without the first axis.

        An example whose weight is zero adds nothing, whatever its gradient is.

        Parameters
        ----------
        weights : Tensor
            One for each example.
        scaled : bool
            Whether output gradients are multiplied by the weights, and rounded to their own type,
            before all examples are multiplied at once. This is fast where an example has few
            positions, but the numbers are no longer those whose norms `bounds` takes.
        """
        device = torch.cuda.get_device_properties(self.outputs.device)
        programs = _PROGRAMS * device.multi_processor_count
        together = triton.cdiv(self._examples * self._tiles, programs)
        chunks = triton.cdiv(self._examples, together)
        sums = self._gradients(chunks)
        self._run(sums, None, chunks, weights.to(torch.float32), scaled=scaled)
        return sums.sum(0)

    def _formed(self, products: Tensor | None) -> NormBounds:
        """Form the gradients, write them if there is room for them, and return bounds."""
        squares = self._empty(self._examples, self._tiles)
        self._run(products, squares, self._examples)
        # As in `norm_bounds_of`: a tile's squares are added up in float32.
        share = (self._tile.made * self._tile.met + 4) * 2.0**-24
        return NormBounds(squares.sum(1, dtype=torch.float64).sqrt(), share)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(*shape, dtype=torch.float32, device=self.outputs.device)

    def _gradients(self, number: int) -> Tensor:
        rows, columns = self._geometry.kernel
        made, channels = self.outputs.shape[1], self.inputs.shape[1]
        return self._empty(number, rows, 1, made, columns * channels)

    def _run(
        self,
        result: Tensor | None,
        squares: Tensor | None,
        chunks: int,
        weights: Tensor | None = None,
        *,
        scaled: bool = False,
    ) -> None:
        inputs, outputs, shape = self.inputs, self.outputs, self._geometry
        with torch.cuda.device_of(outputs):  # Triton runs on the current one
            _form[(self._tiles * chunks,)](
                *(inputs, outputs, weights, result, squares),
                *(self._examples, triton.cdiv(self._examples, chunks)),
                *(*inputs.stride(), *outputs.stride()),
                *(len(inputs) // self._examples, *inputs.shape[1:], *outputs.shape[1:]),
                *(*shape.kernel, *shape.stride, *shape.dilation, *shape.padding),
                is_kept=weights is None and result is not None,
                is_sum=weights is not None and not scaled,
                is_scaled=scaled,
                made_block=self._tile.made,
                met_block=self._tile.met,
                position_block=self._tile.positions,
                num_warps=self._tile.warps,
                num_stages=self._tile.stages,
            )
