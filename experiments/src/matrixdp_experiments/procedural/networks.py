"""The residual networks that learn from scenes; their maps before each block are features."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.models.group_norm import GroupNorm

__all__ = [
    "NETWORKS",
    "Body",
    "NetworkName",
    "NetworkShape",
    "Projection",
    "checked_network",
    "half_on_gpu",
    "shown",
]

NetworkName: TypeAlias = Literal["wide", "p2", "tiny"]

_GROUP = 16  # channels that are normalised together


@dataclass(frozen=True)
class NetworkShape:
    """How wide and deep a network is.

    Attributes
    ----------
    stem : int
        Channels of the first convolution.
    widths, blocks : tuple of int
        Channels and blocks of each level; every level after the first halves height and width.
    """

    stem: int
    widths: tuple[int, ...]
    blocks: tuple[int, ...]


NETWORKS: dict[NetworkName, NetworkShape] = {
    "wide": NetworkShape(64, (64, 256, 512), (1, 2, 2)),
    "p2": NetworkShape(16, (64, 128, 256), (2, 2, 2)),
    "tiny": NetworkShape(16, (16, 32), (1, 1)),
}
"""``wide`` has 10.4 million parameters, ``p2`` is WRN-16-4, and ``tiny`` is for tests."""


def checked_network(name: str) -> NetworkName:
    """Return the name of a network, or raise if it is not one.

    Examples
    --------
    >>> checked_network("wide")
    'wide'
    """
    for known in NETWORKS:
        if known == name:
            return known
    raise InvalidParameterError(f"network={name!r} is not known: use {', '.join(NETWORKS)}")


def half_on_gpu(device: torch.device) -> torch.autocast:
    """Return a context in which networks multiply in bfloat16, if the device is a GPU."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def shown(images: Tensor) -> Tensor:
    """Return images from 0 to 1 as a network wants them."""
    return ((images - 0.5) * 3.5).contiguous(memory_format=torch.channels_last)


class _Block(nn.Module):
    """Two convolutions of 3 x 3 with normalisation before each, and a path around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first_norm = GroupNorm(inputs // _GROUP, inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second_norm = GroupNorm(outputs // _GROUP, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.around = (
            nn.Identity()
            if inputs == outputs
            else nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the block's map, and its input after normalisation and ReLU."""
        active = torch.relu(self.first_norm(images))
        around = images if isinstance(self.around, nn.Identity) else self.around(active)
        inner = torch.relu(self.second_norm(self.first(active)))
        return around + self.second(inner), active


class Body(nn.Module):
    """The network without its projection.

    Examples
    --------
    >>> [tuple(part.shape[1:]) for part in Body("tiny")(torch.zeros(2, 3, 32, 32))]
    [(16, 32, 32), (16, 32, 32), (32, 16, 16)]
    """

    def __init__(self, name: NetworkName) -> None:
        super().__init__()
        shape = NETWORKS[name]
        self.stem = nn.Conv2d(3, shape.stem, 3, padding=1, bias=False)
        blocks, inputs = [], shape.stem
        for level, (width, count) in enumerate(zip(shape.widths, shape.blocks, strict=True)):
            for number in range(count):
                stride = 2 if level and not number else 1
                blocks.append(_Block(inputs, width, stride))
                inputs = width
        self.blocks = nn.ModuleList(blocks)
        self.norm = GroupNorm(inputs // _GROUP, inputs)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def channels(self) -> int:
        """Channels of the last map."""
        return self.norm.num_channels

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the maps after the stem and after every block, normalised and after ReLU."""
        values: Tensor = self.stem(images)
        maps = []
        for block in self.blocks:
            values, active = block(values)
            maps.append(active)
        maps.append(torch.relu(self.norm(values)))
        return maps


class Projection(nn.Module):
    """From the mean of the last map to a point on a sphere; dropped after learning."""

    def __init__(self, channels: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, outputs)
        )

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Return one row of norm 1 for each image."""
        rows: Tensor = self.layers(maps[-1].mean(dim=(2, 3)))
        return nn.functional.normalize(rows.float(), dim=1)
