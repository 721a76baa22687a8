"""The feature map: from images to rows of integers, block by block.

Everything in it comes from scenes. A private image passes through and leaves nothing behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from matrixdp_experiments.procedural.alone import measured_alone
from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.draws import Draws
from matrixdp_experiments.procedural.measuring import Measuring
from matrixdp_experiments.procedural.networks import Body
from matrixdp_experiments.procedural.rendering import rendered
from matrixdp_experiments.procedural.scenes import drawn_pairs
from matrixdp_experiments.procedural.textures import texture_bank
from matrixdp_experiments.procedural.views import plain_views
from matrixdp_experiments.procedural.whitening import BlockWhitening

__all__ = ["FeatureMap", "FeatureSetting", "synthetic_images"]

_AT_ONCE = 1024  # synthetic images that are rendered together


@dataclass(frozen=True)
class FeatureSetting:
    """What gives the statistics.

    Attributes
    ----------
    seed : int
        Of the scenes.
    images : int
        How many.
    textures : int
        Size of their bank.
    """

    seed: int = 0
    images: int = 16_384
    textures: int = 16_384


def synthetic_images(setting: FeatureSetting, device: torch.device) -> Tensor:
    """Return the images whose statistics are used, as uint8."""
    draws = Draws.of(setting.seed, device)
    bank = texture_bank(setting.textures, draws)
    parts = []
    for start in range(0, setting.images, _AT_ONCE):
        layers, _ = drawn_pairs(min(_AT_ONCE, setting.images - start), setting.textures, draws)
        parts.append((plain_views(rendered(layers, bank), draws) * 255).round().to(torch.uint8))
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
    device : torch.device
        Where.
    """

    measuring: Measuring
    whitenings: dict[Block, BlockWhitening]
    device: torch.device

    @classmethod
    def of(cls, bodies: Sequence[Body], setting: FeatureSetting, device: torch.device) -> Self:
        """Return the map of some networks, with statistics from synthetic images."""
        images = synthetic_images(setting, device)
        measuring = Measuring([body.to(device) for body in bodies])
        blocks = list(measuring(images[0]))
        rows = measured_alone(measuring.row, images, device)
        parts = rows.split([block.columns for block in blocks], dim=1)
        found = {block: BlockWhitening.of(part) for block, part in zip(blocks, parts, strict=True)}
        return cls(measuring, found, device)

    @property
    def blocks(self) -> list[Block]:
        """The blocks, in the order of the columns."""
        return list(self.whitenings)

    def __call__(self, images: Tensor) -> Tensor:
        """Return the rows of images.

        Parameters
        ----------
        images : Tensor of uint8, shape (images, 3, 32, 32)
            On any device.

        Returns
        -------
        Tensor of int16, shape (images, columns)
            On the CPU. Every block of a row has a norm of at most `BLOCK_BOUND`.

        Notes
        -----
        *Guarantee:* a row depends on its image alone. Each image is measured by itself; what
        follows are exact sums of integers, and operations entry by entry.
        """
        raw = measured_alone(self.measuring.row, images, self.device)
        parts = raw.split([block.columns for block in self.blocks], dim=1)
        whitened = zip(self.whitenings.values(), parts, strict=True)
        return torch.cat([whiten(part).cpu() for whiten, part in whitened], dim=1)
