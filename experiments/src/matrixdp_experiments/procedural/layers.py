"""The blobs that a scene is made of, one over the other."""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["HARMONICS", "LAYERS", "Layers"]

LAYERS = 16
"""Blobs of a scene, from back to front; the first one is the background."""

HARMONICS = 5
"""Fourier terms of an outline: of two to six periods."""


@dataclass(frozen=True, eq=False)
class Layers:
    """The blobs of some scenes, in coordinates from -1 to 1.

    Every attribute has the shape (scenes, LAYERS, ...).

    Attributes
    ----------
    centre, axes : Tensor, 2 numbers for each blob
        Where it is, and its half axes.
    angle, exponent : Tensor
        Rotation, and the exponent of the superellipse: 2 is an ellipse.
    harmonics : Tensor, HARMONICS x 2 numbers
        Cosine and sine terms of the outline.
    texture : Tensor of int64
        Number in the bank.
    grain : Tensor, 4 numbers
        Two of a rotation with scaling, and a shift of the texture.
    colour : Tensor, 3 numbers
        Without the texture, from 0 to 1.
    contrast, shading, outline, opacity : Tensor
        How much texture there is, how round it looks, how dark its rim is, and 0 where there is no
        blob.
    light : Tensor, 2 numbers
        Where the light comes from; equal for all blobs of a scene.
    """

    centre: Tensor
    axes: Tensor
    angle: Tensor
    exponent: Tensor
    harmonics: Tensor
    texture: Tensor
    grain: Tensor
    colour: Tensor
    contrast: Tensor
    shading: Tensor
    outline: Tensor
    opacity: Tensor
    light: Tensor

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Layers":
        """Return layers with a function applied to every attribute."""
        return Layers(**{field.name: change(getattr(self, field.name)) for field in fields(self)})

    def where(self, chosen: Tensor, other: "Layers") -> "Layers":
        """Return these layers where a boolean of shape (scenes, LAYERS) is true, else the other's.

        Examples
        --------
        >>> parts = {field.name: torch.ones(1, LAYERS) for field in fields(Layers)}
        >>> ones, none = Layers(**parts), torch.zeros(1, LAYERS, dtype=torch.bool)
        >>> float(ones.where(none, ones.mapped(torch.zeros_like)).angle.sum())
        0.0
        """
        parts = {}
        for field in fields(self):
            own, others = getattr(self, field.name), getattr(other, field.name)
            mask = chosen.reshape(chosen.shape + (1,) * (own.ndim - 2))
            parts[field.name] = torch.where(mask, own, others)
        return Layers(**parts)
