"""The Gram matrix of a convolution's patches as shifted copies of that of its pixels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from matrixdp.training.layers.gram import UNIT_ROUNDOFF_32, gram

__all__ = ["Geometry", "norms_of_patches"]

# On a GPU one thread block holds a row of the Gram matrix.
_MOST_FUSED_POSITIONS = 1024


@dataclass(frozen=True)
class Geometry:
    """The shape of a convolution in two dimensions: (vertical, horizontal) each.

    ``padding`` is that of zeros before the first row and column; what other paddings add is part of
    the input already.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    groups: int

    def window(self, axis: int, offset: int, length: int) -> slice:
        """Return the padded input positions that an offset of the kernel meets along an axis."""
        start = offset * self.dilation[axis]
        return slice(start, start + self.stride[axis] * (length - 1) + 1, self.stride[axis])

    def met(self, axis: int, offset: int, inside: int, length: int) -> tuple[slice, slice]:
        """Return the outputs that an offset gives an unpadded input, and these inputs."""
        stride = self.stride[axis]
        shift = offset * self.dilation[axis] - self.padding[axis]
        first = max(0, -(shift // stride))  # the first output whose input is not before the start
        last = min(length, (inside - 1 - shift) // stride + 1)
        count = max(0, last - first)
        start = first * stride + shift
        return slice(first, first + count), slice(start, start + stride * count, stride)


def norms_of_patches(inputs: Tensor, outputs: Tensor, geometry: Geometry) -> Tensor:
    r"""Return upper bounds of the squared norms of every example's weight gradient, in float64.

    ``sum_(t,s) K_x[t,s] K_g[t,s]`` where K_g is the Gram matrix of output gradients, K_x that of
    patches, and ``K_x[t, s] = sum_o P[t stride + o, s stride + o]`` with P the Gram matrix of
    *pixels*, zero outside of the image: nothing is unfolded.

    Parameters
    ----------
    inputs, outputs : Tensor, shapes (examples, channels, height, width)
        The input and the gradients of the output.
    geometry : Geometry
        Of the convolution.

    Notes
    -----
    *Guarantee:* a float32 sum of k products is off by at most ``(k + 1) u sum |a b|``, in any order
    of summation (Higham 2002, section 3.1), which for an entry (t, s) of a Gram matrix is at most
    ``(k + 1) u |x_t| |x_s|``. Adding up the offsets, multiplying the two matrices and adding up a
    row round once for each term; rows are added up in float64. To first order that is a number of
    units u times ``(sum_t |x_t| |g_t|)^2``, to which the error is relative because the terms
    themselves cancel. Twice as much is added, which covers the higher orders and the rounding of
    the diagonals for any number of units below 2**20.
    """
    pixels = gram(inputs.flatten(2).transpose(1, 2))
    made = gram(outputs.flatten(2).transpose(1, 2))
    positions = made.shape[1]
    if inputs.is_cuda and positions <= _MOST_FUSED_POSITIONS:
        from matrixdp.training.layers.fused_gram import fused_rows  # noqa: PLC0415

        rows, diagonal = fused_rows(pixels, made, inputs.shape[2:], outputs.shape[2:], geometry)
    else:
        patches = _patches(pixels, inputs.shape[2:], outputs.shape[2:], geometry)
        rows, diagonal = (patches * made).sum(2), torch.diagonal(patches, dim1=1, dim2=2)
    own = torch.diagonal(made, dim1=1, dim2=2).to(torch.float64)
    sizes = (diagonal.to(torch.float64) * own).clamp(min=0.0).sqrt().sum(1).square()
    offsets = geometry.kernel[0] * geometry.kernel[1]
    units = inputs.shape[1] + outputs.shape[1] + offsets + positions + 4
    total = rows.sum(1, dtype=torch.float64).clamp(min=0.0)
    return total + 2.0 * units * UNIT_ROUNDOFF_32 * sizes


def _patches(
    pixels: Tensor, inside: torch.Size, outside: torch.Size, geometry: Geometry
) -> Tensor:
    """Return the Gram matrix of patches."""
    inner = pixels.unflatten(1, inside).unflatten(3, inside)
    total = pixels.new_zeros(len(pixels), *outside, *outside)
    for i in range(geometry.kernel[0]):
        down, rows = geometry.met(0, i, inside[0], outside[0])
        for j in range(geometry.kernel[1]):
            across, columns = geometry.met(1, j, inside[1], outside[1])
            total[:, down, across, down, across] += inner[:, rows, columns, rows, columns]
    return total.flatten(3).flatten(1, 2)
