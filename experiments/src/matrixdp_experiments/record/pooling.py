"""Statistics of maps that do not change when the image is mirrored."""

from torch import Tensor
from torch.nn import functional

__all__ = ["MOST_CHANNELS_OF_FINE", "deviations", "means", "mirrored_half"]

MOST_CHANNELS_OF_FINE = 256
"""Maps with more channels are not pooled to 4 x 4."""


def mirrored_half(cells: Tensor) -> Tensor:
    """Return the mean of cells and their mirror image, without the half that repeats; flattened.

    Examples
    --------
    >>> import torch
    >>> mirrored_half(torch.tensor([[[[1.0, 3.0], [5.0, 9.0]]]]))
    tensor([[2., 7.]])
    """
    half = (cells + cells.flip(-1))[..., : (cells.shape[-1] + 1) // 2] / 2
    return half.flatten(1)


def means(maps: Tensor, side: int) -> Tensor:
    """Return the means over ``side`` x ``side`` cells, made the same for mirror images."""
    return mirrored_half(functional.adaptive_avg_pool2d(maps, side))


def deviations(maps: Tensor, side: int) -> Tensor:
    """Return the standard deviations within each of these cells, likewise."""
    mean = functional.adaptive_avg_pool2d(maps, side)
    square = functional.adaptive_avg_pool2d(maps * maps, side)
    return mirrored_half((square - mean * mean).clamp(min=0.0).sqrt())
