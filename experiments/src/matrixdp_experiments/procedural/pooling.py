"""Statistics of maps that do not change when the image is mirrored."""

import torch
from torch import Tensor

__all__ = ["MOST_CHANNELS_OF_FINE", "cell_means", "coarser", "deviations", "mirrored_half"]

MOST_CHANNELS_OF_FINE = 256
"""Maps with more channels are not pooled to 4 x 4."""


def mirrored_half(cells: Tensor) -> Tensor:
    """Return the mean of cells and their mirror image, without the half that repeats; flattened.

    Examples
    --------
    >>> mirrored_half(torch.tensor([[[[1.0, 3.0], [5.0, 9.0]]]]))
    tensor([[2., 7.]])
    """
    half = (cells + cells.flip(-1))[..., : (cells.shape[-1] + 1) // 2] / 2
    return half.flatten(1)


def cell_means(maps: Tensor, side: int) -> Tensor:
    """Return the means over ``side`` x ``side`` cells, which must divide height and width.

    Examples
    --------
    >>> cell_means(torch.arange(16.0).view(1, 1, 4, 4), 2)
    tensor([[[[ 2.5000,  4.5000],
              [10.5000, 12.5000]]]])
    """
    height, width = maps.shape[-2] // side, maps.shape[-1] // side
    cells = maps.unflatten(-1, (side, width)).unflatten(-3, (side, height))
    means: Tensor = cells.mean(dim=(-3, -1), dtype=torch.float32)
    return means


def coarser(cells: Tensor) -> Tensor:
    """Return the means over two by two neighbouring cells."""
    return cell_means(cells, cells.shape[-1] // 2)


def deviations(maps: Tensor, mean: Tensor) -> Tensor:
    """Return the standard deviations within cells whose means are given."""
    square = cell_means(maps.float().square(), mean.shape[-1])
    return (square - mean * mean).clamp(min=0.0).sqrt()
