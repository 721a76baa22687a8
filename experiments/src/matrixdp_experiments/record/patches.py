"""Random whitened patches of synthetic images as filters: features without a network.

Coates, Lee and Ng, *An analysis of single-layer networks in unsupervised feature learning*, 2011.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp_experiments.record.draws import Draws
from matrixdp_experiments.record.pooling import mirrored_half

__all__ = ["PatchFilters"]

_SAMPLED = 200_000  # patches whose covariance is taken
_FLOOR = 0.01  # added to eigenvalues, over the largest


@dataclass(frozen=True, eq=False)
class PatchFilters:
    """Filters of one size.

    Attributes
    ----------
    filters : Tensor, shape (filters, 3, size, size)
        Whitened patches, in the coordinates of images.
    shift : Tensor, shape (filters,)
        Minus the answer to the mean patch.
    """

    filters: Tensor
    shift: Tensor

    @classmethod
    def of(cls, images: Tensor, size: int, count: int, draws: Draws) -> Self:
        """Return filters from random places of public images."""
        sampled = _random_patches(images, size, _SAMPLED, draws)
        centre = sampled.mean(dim=0)
        centred = sampled - centre
        variances, directions = torch.linalg.eigh(centred.T @ centred / len(centred))
        scales = (variances + _FLOOR * variances[-1]).rsqrt()
        whitening = directions * scales @ directions.T
        chosen = functional.normalize(centred[:count] @ whitening, dim=1)
        filters = chosen @ whitening
        return cls(filters.view(count, 3, size, size), -(filters @ centre))

    def __call__(self, images: Tensor) -> Tensor:
        """Return the mean positive and negative answers in 2 x 2 cells, the same if mirrored."""
        answers = functional.conv2d(images, self.filters, self.shift)
        signs = torch.cat([answers.relu(), (-answers).relu()], dim=1)
        # Sides may be odd, and cells then overlap.
        return mirrored_half(functional.adaptive_avg_pool2d(signs, 2))


def _random_patches(images: Tensor, size: int, count: int, draws: Draws) -> Tensor:
    """Return flattened patches from random places."""
    places = images.shape[-1] - size + 1
    image = draws.integers(count, below=len(images))
    row, column = draws.integers(count, below=places), draws.integers(count, below=places)
    line = torch.arange(size, device=images.device)
    rows = (row[:, None] + line)[:, None, :, None]
    columns = (column[:, None] + line)[:, None, None, :]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[image[:, None, None, None], channel, rows, columns].flatten(1)
