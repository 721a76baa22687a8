"""The feature map: from images to rows of integers, block by block.

Everything in it comes from scenes. A private image passes through and leaves nothing behind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from matrixdp_experiments.procedural.blocks import Block
from matrixdp_experiments.procedural.draws import Draws
from matrixdp_experiments.procedural.measuring import Measuring
from matrixdp_experiments.procedural.networks import Body
from matrixdp_experiments.procedural.rendering import rendered
from matrixdp_experiments.procedural.scenes import drawn_pairs
from matrixdp_experiments.procedural.textures import texture_bank
from matrixdp_experiments.procedural.views import VIEW_SIDE, plain_views
from matrixdp_experiments.procedural.whitening import BlockWhitening

__all__ = ["FeatureMap", "FeatureSetting", "measured_alone", "synthetic_images"]

Measure = Callable[[Tensor], Tensor]
_LANES = 12  # images at a time, each in a stream of its own; it changes nothing
_AT_ONCE = 1024  # synthetic images that are rendered together


def measured_alone(measure: Measure, images: Tensor, device: torch.device) -> Tensor:
    """Return what is measured on each image, one row for each, on the device.

    What is measured on one cannot depend on the others. A batch of images is not a function of each
    of them in floating point: kernels choose their order of addition by how many there are, and
    some by the index of each. On a GPU a few rows of a batch changed in their last digits when the
    first image was taken out. Here the same program, with the same shapes and the same addresses,
    runs once for each image and sees that image only.

    Parameters
    ----------
    measure : callable
        From one image of uint8 to one row; deterministic, and without random numbers.
    images : Tensor of uint8, shape (images, 3, 32, 32)
        Some, at least one.
    device : torch.device
        Where it is measured.
    """
    there = images.to(device)
    if device.type != "cuda":
        return torch.stack([measure(image) for image in there])
    with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=True):
        lanes = [_Lane.of(measure, device) for _ in range(min(_LANES, len(there)))]
    rows = torch.empty(len(there), *lanes[0].row.shape, dtype=lanes[0].row.dtype, device=device)
    torch.cuda.synchronize(device)
    for number, image in enumerate(there):
        lanes[number % len(lanes)].write(image, rows[number])
    torch.cuda.synchronize(device)
    return rows


@dataclass(frozen=True, eq=False)
class _Lane:
    """The program as recorded once, with the memory that it reads and writes."""

    stream: torch.cuda.Stream
    graph: torch.cuda.CUDAGraph
    image: Tensor
    row: Tensor

    @classmethod
    def of(cls, measure: Measure, device: torch.device) -> "_Lane":
        """Return a lane after two runs that let libraries set themselves up."""
        stream = torch.cuda.Stream(device)
        image = torch.zeros(3, VIEW_SIDE, VIEW_SIDE, dtype=torch.uint8, device=device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(2):
                measure(image)
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            row = measure(image)
        return cls(stream, graph, image, row)

    def write(self, image: Tensor, target: Tensor) -> None:
        """Measure an image and write its row, after what the lane did before."""
        with torch.cuda.stream(self.stream):
            self.image.copy_(image)
            self.graph.replay()
            target.copy_(self.row)


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
