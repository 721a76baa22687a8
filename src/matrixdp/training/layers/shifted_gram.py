"""The Gram matrix of a convolution's patches as shifted copies of that of its pixels."""

import torch
from torch import Tensor

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.kernels.geometry import Geometry
from matrixdp.training.layers.gram import bounds_from_rows, gram

__all__ = ["norms_of_patches"]

# Gram matrices are as large as the positions squared: they are formed for so many examples at once.
_MOST_GRAM_BYTES = 1 << 26


def norms_of_patches(
    inputs: Tensor, outputs: Tensor, geometry: Geometry, rounding: float
) -> NormBounds:
    r"""Return bounds of the norms of every example's weight gradient.

    ``sum_(t,s) K_x[t,s] K_g[t,s]`` where K_g is the Gram matrix of output gradients, K_x that of
    patches, and ``K_x[t, s] = sum_o P[t stride + o, s stride + o]`` with P the Gram matrix of
    *pixels*, zero outside of the image: nothing is unfolded. See `bounds_from_rows` for the
    rounding; adding up the offsets is part of it.

    Parameters
    ----------
    inputs, outputs : Tensor, shapes (examples, channels, height, width)
        The input and the gradients of the output.
    geometry : Geometry
        Of the convolution.
    rounding : float
        How far both may be rounded before they are multiplied for the sum; `factor_rounding`.
    """
    largest = max(inputs[0, 0].numel(), outputs[0, 0].numel())
    together = max(1, _MOST_GRAM_BYTES // (4 * largest**2))
    found = [
        _row_sums(inputs[start : start + together], outputs[start : start + together], geometry)
        for start in range(0, len(inputs), together)
    ]
    rows, patches, made = (
        parts[0] if len(parts) == 1 else torch.cat(parts) for parts in zip(*found, strict=True)
    )
    offsets = geometry.kernel[0] * geometry.kernel[1]
    units = inputs.shape[1] + outputs.shape[1] + offsets
    return bounds_from_rows(rows, patches, made, units, rounding)


def _row_sums(inputs: Tensor, outputs: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``sum_s K_x[t,s] K_g[t,s]``, ``K_x[t,t]`` and ``K_g[t,t]`` for all t."""
    pixels = gram(inputs.flatten(2).transpose(1, 2))
    made = gram(outputs.flatten(2).transpose(1, 2))
    inside, outside = inputs.shape[2:], outputs.shape[2:]
    if inputs.is_cuda:
        from matrixdp.training.kernels.fused_gram import fused_rows  # noqa: PLC0415

        rows, diagonal = fused_rows(pixels, made, inside, outside, geometry)
    else:
        patches = _patches(pixels, inside, outside, geometry)
        rows, diagonal = (patches * made).sum(2), _diagonal(patches)
    return rows, diagonal, _diagonal(made)


def _diagonal(matrices: Tensor) -> Tensor:
    """Return diagonals as copies: a view would hold the matrices of all parts until the end."""
    return torch.diagonal(matrices, dim1=1, dim2=2).clone()


def _patches(pixels: Tensor, inside: torch.Size, outside: torch.Size, geometry: Geometry) -> Tensor:
    """Return the Gram matrix of patches."""
    inner = pixels.unflatten(1, inside).unflatten(3, inside)
    total = pixels.new_zeros(len(pixels), *outside, *outside)
    for i in range(geometry.kernel[0]):
        down, rows = geometry.met(0, i, inside[0], outside[0])
        for j in range(geometry.kernel[1]):
            across, columns = geometry.met(1, j, inside[1], outside[1])
            total[:, down, across, down, across] += inner[:, rows, columns, rows, columns]
    return total.flatten(3).flatten(1, 2)
