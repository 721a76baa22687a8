"""Random views of scenes, 32 x 32, for contrastive learning; plain ones for statistics."""

import torch
from torch import Tensor
from torch.nn import functional

from matrixdp_experiments.procedural.draws import Draws

__all__ = ["VIEW_SIDE", "plain_views", "random_views"]

VIEW_SIDE = 32
"""Height and width of a view, and of the private images."""

_LEAST_AREA = 0.2
_MOST_HUE = 0.6  # radians in the plane of colours
# From red, green and blue to brightness and two numbers for the hue (YIQ).
_TO_HUE = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


def random_views(scenes: Tensor, draws: Draws) -> Tensor:
    """Return a crop of each scene, at random turned, mirrored, recoloured, made grey or blurred."""
    views = _crops(scenes, _LEAST_AREA, draws)
    views = _recoloured(views, draws)
    return _blurred(views, draws).clamp(0.0, 1.0)


def plain_views(scenes: Tensor, draws: Draws) -> Tensor:
    """Return a crop of each scene, with the colours as they are."""
    return _crops(scenes, 0.5, draws).clamp(0.0, 1.0)


def _crops(scenes: Tensor, least_area: float, draws: Draws) -> Tensor:
    """Return parts of the scenes: their share of the area is from ``least_area`` to 1."""
    count = len(scenes)
    length = draws.uniform(count, low=least_area, high=1.0).sqrt()
    aspect = draws.normal(count, scale=0.12).exp()
    width, height = (length * aspect).clamp(max=1.0), (length / aspect).clamp(max=1.0)
    x = (1 - width) * draws.uniform(count, low=-1.0, high=1.0)
    y = (1 - height) * draws.uniform(count, low=-1.0, high=1.0)
    turn = draws.normal(count, scale=0.12)
    flip = torch.where(draws.chance(count, of=0.5), -1.0, 1.0)
    cosine, sine = turn.cos(), turn.sin()
    rows = torch.stack(
        [flip * width * cosine, -height * sine, x, flip * width * sine, height * cosine, y], dim=-1
    )
    grid = functional.affine_grid(
        rows.view(count, 2, 3), [count, 3, VIEW_SIDE, VIEW_SIDE], align_corners=False
    )
    return functional.grid_sample(scenes, grid, padding_mode="reflection", align_corners=False)


def _recoloured(views: Tensor, draws: Draws) -> Tensor:
    """Return views with other brightness, contrast, saturation and hue; a fifth without colours."""
    count = len(views)
    to_hue = torch.tensor(_TO_HUE, device=views.device)
    brightness = draws.uniform(count, 1, 1, 1, low=0.6, high=1.4)
    contrast = draws.uniform(count, 1, 1, 1, low=0.6, high=1.4)
    saturation = draws.uniform(count, low=0.5, high=1.6)
    turn = draws.uniform(count, low=-_MOST_HUE, high=_MOST_HUE)
    same = ~draws.chance(count, of=0.8)
    saturation = torch.where(same, 1.0, saturation)
    saturation = torch.where(draws.chance(count, of=0.2), 0.0, saturation)
    turn = torch.where(same, 0.0, turn)
    cosine, sine = saturation * turn.cos(), saturation * turn.sin()
    one, none = torch.ones_like(turn), torch.zeros_like(turn)
    rotation = torch.stack([one, none, none, none, cosine, -sine, none, sine, cosine], dim=-1)
    mix = torch.linalg.inv(to_hue) @ rotation.view(count, 3, 3) @ to_hue
    mixed = torch.einsum("nij,njhw->nihw", mix, views)
    mean = mixed.mean(dim=(1, 2, 3), keepdim=True)
    changed = (mean + contrast * (mixed - mean)) * brightness
    return torch.where(same.view(-1, 1, 1, 1), mixed, changed).clamp(0.0, 1.0)


def _blurred(views: Tensor, draws: Draws) -> Tensor:
    """Return views, some of them smoothed with a kernel of three pixels, up to twice."""
    count = len(views)
    for _ in range(2):
        share = draws.uniform(count, 1, 1, 1, high=1 / 3) * draws.chance(count, 1, 1, 1, of=0.4)
        for dim in (2, 3):
            pad = (0, 0, 1, 1) if dim == 2 else (1, 1, 0, 0)
            wide = functional.pad(views, pad, mode="replicate")
            before = wide.narrow(dim, 0, VIEW_SIDE)
            after = wide.narrow(dim, 2, VIEW_SIDE)
            views = views + share * (before + after - 2 * views)
    return views
