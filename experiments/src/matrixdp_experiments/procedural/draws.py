"""Seeded draws on one device."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["Draws"]


@dataclass(frozen=True)
class Draws:
    """A generator and its device, with the distributions that scenes are made from.

    Attributes
    ----------
    generator : torch.Generator
        Where the numbers come from; its state is all that decides them.

    Examples
    --------
    >>> Draws.of(7, torch.device("cpu")).uniform(3, low=1.0, high=2.0).shape
    torch.Size([3])
    """

    generator: torch.Generator

    @classmethod
    def of(cls, seed: int, device: torch.device) -> Self:
        """Return the draws of a seed."""
        return cls(torch.Generator(device).manual_seed(seed))

    @property
    def device(self) -> torch.device:
        """The device of everything that is drawn."""
        return self.generator.device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Return numbers between two bounds."""
        unit = torch.rand(shape, generator=self.generator, device=self.device)
        return low + (high - low) * unit

    def log_uniform(self, *shape: int, low: float, high: float) -> Tensor:
        """Return numbers whose logarithms are uniform."""
        return self.uniform(*shape, low=math.log(low), high=math.log(high)).exp()

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Return centred normal numbers."""
        return scale * torch.randn(shape, generator=self.generator, device=self.device)

    def integers(self, *shape: int, below: int) -> Tensor:
        """Return integers from 0."""
        return torch.randint(below, shape, generator=self.generator, device=self.device)

    def chance(self, *shape: int, of: float) -> Tensor:
        """Return booleans that are true with a probability."""
        return self.uniform(*shape) < of

    def angle(self, *shape: int) -> Tensor:
        """Return angles of the whole circle."""
        return self.uniform(*shape, high=2 * math.pi)
