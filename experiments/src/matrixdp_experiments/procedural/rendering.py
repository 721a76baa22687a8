"""Pixels of scenes: the blobs that they are made of, painted one over the other."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache

import torch
from torch import Tensor

from matrixdp_experiments.procedural.textures import SIDE

__all__ = [
    "HARMONICS",
    "LAYERS",
    "SCENE_SIDE",
    "Layers",
    "rendered",
]

LAYERS = 16
"""Blobs of a scene, from back to front; the first one is the background."""

HARMONICS = 5
"""Fourier terms of an outline: of two to six periods."""
SCENE_SIDE = 64
"""Height and width of a scene in pixels."""

Paint = Callable[..., Tensor]


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


def rendered(layers: Layers, bank: Tensor) -> Tensor:
    """Return the images of scenes.

    Returns
    -------
    Tensor of float32, shape (scenes, 3, SCENE_SIDE, SCENE_SIDE)
        From 0 to 1.
    """
    paint = _paint_for(layers.centre.device.type)
    canvas = torch.zeros(len(layers.centre), 3, SCENE_SIDE, SCENE_SIDE, device=bank.device)
    names = [field.name for field in fields(layers)]
    for number in range(LAYERS):
        # Two more axes: a number for each scene meets all its pixels.
        blob = {name: getattr(layers, name)[:, number, ..., None, None] for name in names}
        canvas = paint(canvas, bank, blob)
    return canvas.clamp(0.0, 1.0)


@cache
def _paint_for(device_type: str) -> Paint:
    """Return the painter; compiled on a GPU, where it would otherwise write every step's pixels."""
    return torch.compile(_painted, dynamic=False) if device_type == "cuda" else _painted


def _painted(canvas: Tensor, bank: Tensor, blob: dict[str, Tensor]) -> Tensor:
    """Return the canvas with one more blob on each image.

    The outline is ``(|u|^p + |v|^p)^(1/p) = 1 + sum_k (a_k cos k t + b_k sin k t)``, k from 2, with
    u and v in the blob's own coordinates and t their angle. Edges are smooth over one pixel.
    """
    line = (torch.arange(SCENE_SIDE, device=canvas.device) + 0.5) * (2 / SCENE_SIDE) - 1
    x = line[None, None, :] - blob["centre"][:, 0]
    y = line[None, :, None] - blob["centre"][:, 1]
    cosine, sine = blob["angle"].cos(), blob["angle"].sin()
    across, down = x * cosine + y * sine, y * cosine - x * sine
    u, v = across / blob["axes"][:, 0], down / blob["axes"][:, 1]
    depth = _depth(u, v, blob)
    pixels = (1 - depth) * (blob["axes"][:, 0] * blob["axes"][:, 1]).sqrt() * (SCENE_SIDE / 2)
    cover = ((pixels + 0.5).clamp(0.0, 1.0) * blob["opacity"])[:, None]
    colour = blob["colour"] + blob["contrast"][:, None] * (_texture(across, down, bank, blob) - 0.5)
    length = (x * x + y * y).sqrt() + 1e-4
    towards = (x * blob["light"][:, 0] + y * blob["light"][:, 1]) / length
    inside = depth.clamp(0.0, 1.0)
    bright = 1 + blob["shading"] * (towards * inside - 0.6 * inside * inside + 0.2)
    rim = blob["outline"] * ((depth - 0.85) * 10).clamp(0.0, 1.0)
    shaded = (colour * (bright * (1 - rim))[:, None]).clamp(0.0, 1.0)
    return canvas + cover * (shaded - canvas)


def _depth(u: Tensor, v: Tensor, blob: dict[str, Tensor]) -> Tensor:
    """Return where a point lies between the middle, 0, and the outline, 1."""
    radius = (u * u + v * v + 1e-8).sqrt()
    cosine, sine = u / radius, v / radius
    # cos and sin of multiples of the angle, by adding the angle again and again.
    wave_c, wave_s = cosine, sine
    reach = torch.ones_like(u)
    for term in range(HARMONICS):
        wave_c, wave_s = wave_c * cosine - wave_s * sine, wave_s * cosine + wave_c * sine
        reach = reach + wave_c * blob["harmonics"][:, term, 0]
        reach = reach + wave_s * blob["harmonics"][:, term, 1]
    exponent = blob["exponent"]
    powers = (u.abs() + 1e-4) ** exponent + (v.abs() + 1e-4) ** exponent
    return powers ** (1 / exponent) / reach.clamp(min=0.2)


def _texture(across: Tensor, down: Tensor, bank: Tensor, blob: dict[str, Tensor]) -> Tensor:
    """Return the texture at points; beyond its edges it goes on mirrored."""
    grain = blob["grain"]
    column = (across * grain[:, 0] - down * grain[:, 1]) * (SCENE_SIDE / 2) + grain[:, 2]
    row = (across * grain[:, 1] + down * grain[:, 0]) * (SCENE_SIDE / 2) + grain[:, 3]
    offset = (blob["texture"] * SIDE + _mirrored(row)) * SIDE + _mirrored(column)
    packed = bank[offset]
    return torch.stack([(packed >> shift) & 255 for shift in (0, 8, 16)], dim=1) * (1 / 255)


def _mirrored(position: Tensor) -> Tensor:
    whole = position.floor().to(torch.int64) % (2 * SIDE)
    return torch.minimum(whole, 2 * SIDE - 1 - whole)
