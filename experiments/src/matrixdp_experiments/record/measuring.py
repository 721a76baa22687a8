"""From images to raw blocks: what is measured on each image, before any statistics of others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp_experiments.record.blocks import Block, Kind
from matrixdp_experiments.record.networks import Body, half_on_gpu, shown
from matrixdp_experiments.record.patches import PatchFilters
from matrixdp_experiments.record.pooling import (
    MOST_CHANNELS_OF_FINE,
    cell_means,
    coarser,
    deviations,
    mirrored_half,
)

__all__ = ["Measuring"]

_SHIFTS = (-3, 0, 3)
_MARGIN = 3
_ENLARGED = 48
_PIXEL_GRIDS = (4, 8)


@dataclass(frozen=True, eq=False)
class Measuring:
    """What is measured; nothing in it has seen a private image.

    Attributes
    ----------
    bodies : sequence of Body
        The networks.
    patches : sequence of PatchFilters
        Filters of several sizes.
    """

    bodies: Sequence[Body]
    patches: Sequence[PatchFilters]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> dict[Block, Tensor]:
        """Return the raw blocks of images, each a row of numbers for each image.

        Parameters
        ----------
        images : Tensor of float32, shape (images, 3, 32, 32)
            From 0 to 1.
        """
        found: dict[tuple[Kind, int, int], Tensor] = {}
        for source, body in enumerate(self.bodies):
            found |= _of_network(body, images, source)
        for number, filters in enumerate(self.patches):
            found["patches", -1, number] = filters(images)
        for number, side in enumerate(_PIXEL_GRIDS):
            found["pixels", -1, number] = mirrored_half(cell_means(images - 0.5, side))
        return {Block(*key, columns=rows.shape[1]): _rooted(rows) for key, rows in found.items()}


def _rooted(rows: Tensor) -> Tensor:
    """Return signed square roots, which shorten long tails."""
    return rows.sign() * rows.abs().sqrt()


Found: TypeAlias = dict[tuple[Kind, int, int], Tensor]


def _of_network(body: Body, images: Tensor, source: int) -> Found:
    """Return the mean statistics of a network's maps over views of each image."""
    sums: Found = {}
    views = _shifted(images)
    for view in views:
        for level, maps in enumerate(_maps(body, view)):
            for kind, cells in _statistics(maps).items():
                _add(sums, (kind, source, level), cells, len(views))
    large = functional.interpolate(images, size=_ENLARGED, mode="bilinear", align_corners=False)
    for view in (large, large.flip(-1)):
        for level, maps in enumerate(_maps(body, view)):
            _add(sums, ("enlarged-2", source, level), cell_means(maps, 2), 2)
    return sums


def _statistics(maps: Tensor) -> dict[Kind, Tensor]:
    """Return what is kept of a map: means of cells of three sizes, and deviations within four."""
    fine = cell_means(maps, 4)
    middle = coarser(fine)
    found: dict[Kind, Tensor] = {
        "mean-1": coarser(middle),
        "mean-2": middle,
        "deviation-2": deviations(maps, middle),
    }
    return found | {"mean-4": fine} if maps.shape[1] <= MOST_CHANNELS_OF_FINE else found


def _add(sums: Found, key: tuple[Kind, int, int], cells: Tensor, views: int) -> None:
    rows = mirrored_half(cells) / views
    sums[key] = sums[key] + rows if key in sums else rows


def _maps(body: Body, images: Tensor) -> list[Tensor]:
    with half_on_gpu(images.device):
        maps: list[Tensor] = body(shown(images))
    return maps


def _shifted(images: Tensor) -> list[Tensor]:
    """Return images moved by up to three pixels, and their mirror images: eighteen views."""
    wide = functional.pad(images, (_MARGIN,) * 4, mode="reflect")
    side = images.shape[-1]
    views = []
    for down in _SHIFTS:
        for right in _SHIFTS:
            top, left = _MARGIN + down, _MARGIN + right
            view = wide[..., top : top + side, left : left + side]
            views += [view, view.flip(-1)]
    return views
