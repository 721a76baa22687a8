"""Random scenes: heaps of blobs, and objects of body, limbs and parts before a background."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from matrixdp_experiments.procedural.draws import Draws
from matrixdp_experiments.procedural.rendering import HARMONICS, LAYERS, Layers

__all__ = ["drawn_pairs"]

_OBJECT_SCENES = 0.7
_OTHER_BACKGROUND, _OTHER_LOOK = 0.25, 0.15  # of the second rendering of an object
_PALETTE = 5
# Which layers are what in a scene with an object; those before are background, ground and clutter.
_LIMBS, _BODY, _PARTS = slice(6, 10), slice(10, 12), slice(12, 16)
_FIRST_OF_OBJECT = 6


def drawn_pairs(count: int, textures: int, draws: Draws) -> tuple[Layers, Layers]:
    """Return two renderings' layers of each of some scenes: the same scene, told slightly apart.

    Parameters
    ----------
    count : int
        How many scenes, at least two.
    textures : int
        How many there are in the bank.
    draws : Draws
        Decides everything.
    """
    objects = draws.chance(count, of=_OBJECT_SCENES)
    scenes = _heaps(count, textures, draws)
    scenes = _with_objects(scenes, objects, draws)
    second = _second(scenes, objects, draws)
    return _jittered(scenes, objects, draws), _jittered(second, objects, draws)


def _heaps(count: int, textures: int, draws: Draws) -> Layers:
    """Return scenes of blobs anywhere, before a background that covers everything."""
    shape = (count, LAYERS)
    size = draws.log_uniform(*shape, low=0.1, high=0.8)
    aspect = draws.normal(*shape, scale=0.35).exp()
    axes = torch.stack([size * aspect, size / aspect], dim=-1)
    axes[:, 0] = 4.0
    opacity = draws.chance(*shape, of=0.75).float()
    opacity[:, 0] = 1.0
    wobble = draws.uniform(count, 1, 1, 1, high=0.25) * draws.chance(*shape, 1, 1, of=0.7)
    periods = torch.arange(2, 2 + HARMONICS, device=draws.device)[:, None]
    light = draws.angle(count, 1).expand(shape)
    return Layers(
        centre=draws.uniform(*shape, 2, low=-1.0, high=1.0),
        axes=axes,
        angle=draws.angle(*shape),
        exponent=torch.where(
            draws.chance(*shape, of=0.6),
            draws.uniform(*shape, low=1.8, high=2.4),
            draws.log_uniform(*shape, low=1.0, high=8.0),
        ),
        harmonics=wobble * draws.normal(*shape, HARMONICS, 2) / periods,
        texture=draws.integers(*shape, below=textures),
        grain=_grain(count, draws),
        colour=_colours(count, draws),
        contrast=draws.chance(*shape, of=0.75) * draws.uniform(*shape, high=1.0) ** 1.5,
        shading=draws.chance(*shape, of=0.7) * draws.uniform(*shape, high=0.7),
        outline=draws.chance(*shape, of=0.3) * draws.uniform(*shape, low=0.3, high=1.0),
        opacity=opacity,
        light=torch.stack([light.cos(), light.sin()], dim=-1),
    )


def _grain(count: int, draws: Draws) -> Tensor:
    """Return how textures lie on blobs."""
    scale = draws.log_uniform(count, LAYERS, low=0.5, high=2.5)
    turn = draws.angle(count, LAYERS)
    shift = draws.uniform(count, LAYERS, 2, high=64.0)
    rotation = torch.stack([scale * turn.cos(), scale * turn.sin()], dim=-1)
    return torch.cat([rotation, shift], dim=-1)


def _colours(count: int, draws: Draws) -> Tensor:
    """Return colours of blobs, each near one of a small palette for each scene; most are dull."""
    brightness = draws.uniform(count, _PALETTE, 1, low=0.05, high=0.95)
    saturation = draws.uniform(count, _PALETTE, 1).square() * 0.5
    palette = brightness + saturation * draws.normal(count, _PALETTE, 3)
    chosen = draws.integers(count, LAYERS, below=_PALETTE)
    near = draws.normal(count, LAYERS, 3, scale=0.06)
    picked = torch.gather(palette, 1, chosen[..., None].expand(-1, -1, 3))
    return (picked + near).clamp(0.0, 1.0)


def _with_objects(scenes: Layers, objects: Tensor, draws: Draws) -> Layers:
    """Return the scenes, with an object and a ground in those that are to have them."""
    count = len(objects)
    size = draws.log_uniform(count, 1, low=0.35, high=0.8)
    tilt = torch.where(
        draws.chance(count, 1, of=0.15), draws.angle(count, 1), draws.normal(count, 1, scale=0.15)
    )
    place = draws.normal(count, 1, 2, scale=0.15)
    centre, axes, angle = scenes.centre.clone(), scenes.axes.clone(), scenes.angle.clone()
    opacity = scenes.opacity.clone()
    for part, (low, high) in ((_LIMBS, (0.06, 0.22)), (_PARTS, (0.05, 0.2))):
        centre[:, part], angle[:, part], opacity[:, part] = _group(count, draws)
        width = draws.log_uniform(count, 1, low=low, high=high)
        longest = 4.0 if part is _LIMBS else 1.6
        length = width * draws.log_uniform(count, 1, low=1.0, high=longest)
        axes[:, part] = torch.stack([length, width], dim=-1)
    centre[:, _BODY], axes[:, _BODY], angle[:, _BODY] = _body(count, draws)
    opacity[:, _BODY.start] = 1.0
    inner = slice(_FIRST_OF_OBJECT, LAYERS)
    centre[:, inner] = place + size[..., None] * _turned(centre[:, inner], tilt)
    axes[:, inner] *= size[..., None]
    angle[:, inner] += tilt
    horizon = draws.uniform(count, low=-0.3, high=0.9)
    centre[:, 1] = torch.stack([torch.zeros_like(horizon), horizon + 3.0], dim=-1)
    axes[:, 1], angle[:, 1] = 3.0, draws.normal(count, scale=0.03)
    opacity[:, 1] = draws.chance(count, of=0.7).float()
    opacity[:, 2:_FIRST_OF_OBJECT] *= draws.chance(count, 4, of=0.7)
    shaped = replace(scenes, centre=centre, axes=axes, angle=angle, opacity=opacity)
    return _alike(shaped).where(objects[:, None].expand(-1, LAYERS), scenes)


def _group(count: int, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Return places, angles and opacities of four like pieces: mirrored pairs or a row of them."""
    side = torch.tensor([-1.0, 1.0, -1.0, 1.0], device=draws.device)
    first = draws.uniform(count, 2, 2, low=-0.9, high=0.9)  # of each pair
    pairs = first.repeat_interleave(2, dim=1)
    pairs = torch.stack([side * pairs[..., 0].abs(), pairs[..., 1]], dim=-1)
    turn = draws.angle(count, 2).repeat_interleave(2, dim=1)
    # A mirrored angle is pi minus the angle.
    pair_turn = torch.where(side > 0, turn, math.pi - turn)
    steps = torch.linspace(-1.0, 1.0, 4, device=draws.device)[:, None]
    start = draws.uniform(count, 1, 2, low=-0.6, high=0.6)
    row = start + steps * draws.uniform(count, 1, 2, low=-0.8, high=0.8)
    mirrored = draws.chance(count, 1, of=0.6)
    centre = torch.where(mirrored[..., None], pairs, row)
    angle = torch.where(mirrored, pair_turn, draws.angle(count, 1))
    some = 2 * draws.integers(count, 1, below=3)
    alive = (torch.arange(4, device=draws.device) < some).float()
    return centre, angle, alive


def _body(count: int, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Return places, axes and angles of the body, and of a second piece at its rim."""
    main = torch.stack(
        [draws.uniform(count, low=0.45, high=1.0), draws.uniform(count, low=0.3, high=0.8)], dim=-1
    )
    second = draws.log_uniform(count, 2, low=0.2, high=0.6)
    where = draws.angle(count)
    rim = torch.stack([where.cos(), where.sin()], dim=-1) * main
    centre = torch.stack([torch.zeros_like(rim), rim], dim=1)
    angle = torch.stack([torch.zeros_like(where), draws.normal(count, scale=0.5)], dim=1)
    return centre, torch.stack([main, second], dim=1), angle


def _turned(points: Tensor, angle: Tensor) -> Tensor:
    x, y = points.unbind(dim=-1)
    cosine, sine = angle.cos(), angle.sin()
    return torch.stack([x * cosine - y * sine, x * sine + y * cosine], dim=-1)


def _alike(scenes: Layers) -> Layers:
    """Return the scenes with pieces of one kind looking alike."""

    def spread(values: Tensor) -> Tensor:
        parts = [values[:, :_FIRST_OF_OBJECT]]
        for part in (_LIMBS, _PARTS):
            if part is _PARTS:
                parts.append(values[:, _BODY])
            piece = values[:, part.start : part.start + 1]
            parts.append(piece.expand(-1, 4, *values.shape[2:]))
        return torch.cat(parts, dim=1)

    names = ("exponent", "harmonics", "texture", "colour", "contrast", "shading", "outline")
    return replace(scenes, **{name: spread(getattr(scenes, name)) for name in names})


def _second(scenes: Layers, objects: Tensor, draws: Draws) -> Layers:
    """Return the scenes again: some objects before another background, or looking otherwise."""
    count = len(objects)
    others = scenes.mapped(lambda values: values.roll(1, dims=0))
    inner = torch.arange(LAYERS, device=draws.device) >= _FIRST_OF_OBJECT
    moved = (objects & draws.chance(count, of=_OTHER_BACKGROUND))[:, None] & ~inner
    found = others.where(moved, scenes)
    painted = (objects & draws.chance(count, of=_OTHER_LOOK))[:, None] & inner
    looks = replace(
        found,
        texture=others.texture,
        colour=others.colour,
        contrast=others.contrast,
    )
    return looks.where(painted, found)


def _jittered(scenes: Layers, objects: Tensor, draws: Draws) -> Layers:
    """Return the scenes with small changes of every blob, and of whole objects."""
    count = len(objects)
    shape = (count, LAYERS)
    inner = torch.arange(LAYERS, device=draws.device)[:, None] >= _FIRST_OF_OBJECT
    whole = objects[:, None, None] & inner
    shift = torch.where(whole, draws.normal(count, 1, 2, scale=0.08), 0.0)
    growth = torch.where(whole, draws.normal(count, 1, 1, scale=0.1).exp(), 1.0)
    return replace(
        scenes,
        centre=scenes.centre * growth + shift + draws.normal(*shape, 2, scale=0.03),
        axes=scenes.axes * growth * draws.normal(*shape, 2, scale=0.08).exp(),
        angle=scenes.angle + draws.normal(*shape, scale=0.08),
        harmonics=scenes.harmonics + draws.normal(*shape, HARMONICS, 2, scale=0.015),
        grain=scenes.grain
        + torch.cat([torch.zeros(*shape, 2, device=draws.device), draws.normal(*shape, 2)], dim=-1),
        colour=(scenes.colour + draws.normal(*shape, 3, scale=0.04)).clamp(0.0, 1.0),
        contrast=scenes.contrast * draws.normal(*shape, scale=0.15).exp(),
    )
