"""The feature map: from images to rows of integers, block by block.

Everything in it comes from scenes. A private image passes through and leaves nothing behind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from matrixdp_experiments.record.blocks import Block
from matrixdp_experiments.record.draws import Draws
from matrixdp_experiments.record.measuring import Measuring
from matrixdp_experiments.record.networks import Body
from matrixdp_experiments.record.patches import PatchFilters
from matrixdp_experiments.record.rendering import rendered
from matrixdp_experiments.record.scenes import drawn_pairs
from matrixdp_experiments.record.textures import texture_bank
from matrixdp_experiments.record.views import plain_views
from matrixdp_experiments.record.whitening import BlockWhitening

__all__ = ["FeatureMap", "FeatureSetting", "synthetic_images"]


@dataclass(frozen=True)
class FeatureSetting:
    """How large the feature map is.

    Attributes
    ----------
    seed : int
        Of the scenes that give statistics and patches.
    synthetic : int
        How many scenes.
    textures : int
        Size of their bank.
    patch_sizes : tuple of int
        Height and width of patches.
    patch_sets, patch_filters : int
        Blocks for each size, and filters of each.
    at_once : int
        Images that go through the networks together: always so many, with zeros after the last.
    """

    seed: int = 0
    synthetic: int = 16_384
    textures: int = 16_384
    patch_sizes: tuple[int, ...] = (5, 6, 8)
    patch_sets: int = 5
    patch_filters: int = 256
    at_once: int = 1024


def synthetic_images(setting: FeatureSetting, device: torch.device) -> Tensor:
    """Return the images whose statistics are used."""
    draws = Draws.of(setting.seed, device)
    bank = texture_bank(setting.textures, draws)
    parts = []
    for start in range(0, setting.synthetic, setting.at_once):
        count = min(setting.at_once, setting.synthetic - start)
        layers, _ = drawn_pairs(count, setting.textures, draws)
        parts.append(plain_views(rendered(layers, bank), draws))
    return torch.cat(parts)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """What turns images into rows; the same rows for the same image.

    Attributes
    ----------
    measuring : Measuring
        What is measured on an image.
    whitenings : dict of Block to BlockWhitening
        How each block is whitened, in the order of the columns.
    at_once : int
        See `FeatureSetting`.
    """

    measuring: Measuring
    whitenings: dict[Block, BlockWhitening]
    at_once: int

    @classmethod
    def of(cls, bodies: Sequence[Body], setting: FeatureSetting, device: torch.device) -> Self:
        """Return the map of some networks, with statistics from synthetic images."""
        images = synthetic_images(setting, device)
        draws = Draws.of(setting.seed + 1, device)
        patches = [
            PatchFilters.of(images, size, setting.patch_filters, draws)
            for size in setting.patch_sizes
            for _ in range(setting.patch_sets)
        ]
        measuring = Measuring([body.to(device) for body in bodies], patches)
        parts = [measuring(some) for some, _ in _batches(images, setting.at_once)]
        found = {
            block: BlockWhitening.of(torch.cat([part[block] for part in parts])[: len(images)])
            for block in parts[0]
        }
        return cls(measuring, found, setting.at_once)

    @property
    def blocks(self) -> list[Block]:
        """The blocks, in the order of the columns."""
        return list(self.whitenings)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the rows of images.

        Parameters
        ----------
        images : Tensor of uint8, shape (images, 3, 32, 32)
            On the device of the map, or not.

        Returns
        -------
        Tensor of int16, shape (images, columns)
            On the CPU. Every block of a row has a norm of at most `BLOCK_BOUND`.
        """
        device = next(iter(self.whitenings.values())).centre.device
        parts = []
        for some, count in _batches(images, self.at_once):
            raw = self.measuring(some.to(device).float() / 255)
            rows = [whiten(raw[block]) for block, whiten in self.whitenings.items()]
            parts.append(torch.cat(rows, dim=1)[:count].cpu())
        return torch.cat(parts)


def _batches(images: Tensor, at_once: int) -> Iterator[tuple[Tensor, int]]:
    """Yield images, always so many, and how many of them are real."""
    for start in range(0, len(images), at_once):
        some = images[start : start + at_once]
        missing = at_once - len(some)
        yield torch.cat([some, some.new_zeros(missing, *some.shape[1:])]), len(some)
