"""From an image to raw blocks: what is measured on it, before any statistics of others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp_experiments.procedural.blocks import Block, Kind
from matrixdp_experiments.procedural.networks import Body, half_on_gpu, shown
from matrixdp_experiments.procedural.views import VIEW_SIDE
from matrixdp_experiments.procedural.whitening import measured_integers

__all__ = [
    "Measuring",
    "cell_means",
    "coarser",
    "deviations",
]

_MOST_CHANNELS_OF_FINE = 256
"""Maps with more channels are not pooled to 4 x 4."""
_SHIFTS = (-3, 0, 3)
_MARGIN = 3
_ENLARGED = 48


def _mirrored_half(cells: Tensor) -> Tensor:
    """Return the mean of cells and their mirror image, without the half that repeats; flattened.

    Examples
    --------
    >>> _mirrored_half(torch.tensor([[[[1.0, 3.0], [5.0, 9.0]]]]))
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


@dataclass(frozen=True, eq=False)
class Measuring:
    """What is measured; nothing in it has seen a private image.

    Attributes
    ----------
    bodies : sequence of Body
        The networks.
    """

    bodies: Sequence[Body]

    @torch.no_grad()
    def __call__(self, image: Tensor) -> dict[Block, Tensor]:
        """Return the raw blocks of one image.

        Parameters
        ----------
        image : Tensor of uint8, shape (3, 32, 32)

        Returns
        -------
        dict of Block to Tensor of float32, shape (columns,)
            In the order of the columns.
        """
        real = image[None].float() / 255
        found = {}
        for number, body in enumerate(self.bodies):
            for (kind, level), row in _of_network(body, real).items():
                found[Block(kind, number, level, len(row))] = row
        return found

    def row(self, image: Tensor) -> Tensor:
        """Return the square roots of all raw blocks of one image, as one row of integers.

        Nothing that is measured is below 0. Roots shorten long tails.
        """
        return measured_integers(torch.cat(list(self(image).values())).sqrt())


_Found: TypeAlias = dict[tuple[Kind, int], Tensor]


def _of_network(body: Body, image: Tensor) -> _Found:
    """Return the mean statistics of a network's maps over views of one image."""
    found: _Found = {}
    for level, maps in enumerate(_maps(body, _shifted(image))):
        for kind, cells in _statistics(maps).items():
            found[kind, level] = _mirrored_half(cells).mean(dim=0)
    large = functional.interpolate(image, size=_ENLARGED, mode="bilinear", align_corners=False)
    for level, maps in enumerate(_maps(body, torch.cat([large, large.flip(-1)]))):
        found["enlarged-2", level] = _mirrored_half(cell_means(maps, 2)).mean(dim=0)
    return found


def _statistics(maps: Tensor) -> dict[Kind, Tensor]:
    """Return what is kept of a map: means of cells of three sizes, and deviations within four."""
    fine = cell_means(maps, 4)
    middle = coarser(fine)
    found: dict[Kind, Tensor] = {
        "mean-1": coarser(middle),
        "mean-2": middle,
        "deviation-2": deviations(maps, middle),
    }
    return found | {"mean-4": fine} if maps.shape[1] <= _MOST_CHANNELS_OF_FINE else found


def _maps(body: Body, images: Tensor) -> list[Tensor]:
    with half_on_gpu(images.device):
        maps: list[Tensor] = body(shown(images))
    return maps


def _shifted(image: Tensor) -> Tensor:
    """Return an image moved by up to three pixels, and the mirror images: eighteen views."""
    wide = functional.pad(image, (_MARGIN,) * 4, mode="reflect")
    views = [
        wide[..., _MARGIN + down :, _MARGIN + right :][..., :VIEW_SIDE, :VIEW_SIDE]
        for down in _SHIFTS
        for right in _SHIFTS
    ]
    both = torch.cat(views)
    return torch.cat([both, both.flip(-1)])
