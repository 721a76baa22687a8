"""Synthetic textures: pattern networks and random spectra.

Each is a square of colours from 0 to 1. Half of them are compositional pattern networks (small
random networks from a point to a colour), half are random fields whose spectrum is a power of the
frequency, stretched in one direction.
"""

import math

import torch
from torch import Tensor

from matrixdp_experiments.procedural.draws import Draws

__all__ = ["SIDE", "texture_bank"]

SIDE = 32
"""Height and width of a texture."""

_AT_ONCE = 1024
_SPREAD = 0.9  # standard deviation before the logistic function, which makes about 0.2 of it
_HIDDEN, _DEPTH = 16, 3


def texture_bank(count: int, draws: Draws) -> Tensor:
    """Return packed textures: 8 bits each of red, green and blue in one integer for each point.

    Returns
    -------
    Tensor of int32, shape (count * SIDE * SIDE,)

    Examples
    --------
    >>> texture_bank(3, Draws.of(0, torch.device("cpu"))).shape
    torch.Size([3072])
    """
    parts = []
    for start in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - start)
        networks = _pattern_networks(some // 2, draws)
        parts.append(_packed(torch.cat([networks, _spectra(some - some // 2, draws)])))
    return torch.cat(parts)


def _packed(fields: Tensor) -> Tensor:
    """Return normalised fields, of shape (textures, 3, SIDE, SIDE), as packed colours."""
    centred = fields - fields.mean(dim=(1, 2, 3), keepdim=True)
    scaled = centred / (centred.std(dim=(1, 2, 3), keepdim=True) + 1e-3)
    bytes_ = (torch.sigmoid(2 * _SPREAD * scaled) * 255).to(torch.int32)
    return (bytes_[:, 0] | bytes_[:, 1] << 8 | bytes_[:, 2] << 16).reshape(-1)


def _pattern_networks(count: int, draws: Draws) -> Tensor:
    """Return fields of random networks whose units are sines, hyperbolic tangents or bumps."""
    line = torch.linspace(-1.0, 1.0, SIDE, device=draws.device)
    y, x = (part.reshape(-1) for part in torch.meshgrid(line, line, indexing="ij"))
    points = torch.stack([x, y, x.hypot(y), torch.ones_like(x)], dim=1)
    frequency = draws.log_uniform(count, 1, 1, low=0.5, high=4.0)
    values = points * frequency
    for _ in range(_DEPTH):
        fan_in = values.shape[-1]
        weights = draws.normal(count, fan_in, _HIDDEN, scale=1.6 / math.sqrt(fan_in))
        kind = draws.integers(count, 1, _HIDDEN, below=3)
        sums = values @ weights
        bumps = 2 * torch.exp(-sums.square()) - 1
        values = torch.where(
            kind == 0, torch.sin(2 * sums), torch.where(kind == 1, sums.tanh(), bumps)
        )
    colours = values @ _colour_mix(count, _HIDDEN, draws)
    return colours.transpose(1, 2).reshape(count, 3, SIDE, SIDE)


def _spectra(count: int, draws: Draws) -> Tensor:
    """Return random fields with amplitude f^-a, f a stretched frequency; some nearly of two values.

    The exponent a is from 0.6 to 2.8.
    """
    line = torch.fft.fftfreq(SIDE, device=draws.device) * SIDE
    y, x = torch.meshgrid(line, line, indexing="ij")
    turn = draws.angle(count, 1, 1, 1)
    stretch = draws.log_uniform(count, 1, 1, 1, low=0.25, high=4.0)
    along, across = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
    frequency = torch.sqrt((stretch * along) ** 2 + (across / stretch) ** 2 + 1.0)
    amplitude = frequency ** -draws.uniform(count, 1, 1, 1, low=0.6, high=2.8)
    noise = torch.fft.fft2(draws.normal(count, 3, SIDE, SIDE))
    fields = torch.fft.ifft2(noise * amplitude).real
    fields = fields / fields.std(dim=(1, 2, 3), keepdim=True)
    hard = draws.chance(count, 1, 1, 1, of=0.3)
    fields = torch.where(hard, (4 * fields).tanh(), fields)
    mix = _colour_mix(count, 3, draws)
    return torch.einsum("nchw,ncd->ndhw", fields, mix)


def _colour_mix(count: int, inputs: int, draws: Draws) -> Tensor:
    """Return maps to colours that share most of their brightness, and differ by a random tint."""
    shared = draws.normal(count, inputs, 1)
    tint = draws.uniform(count, 1, 1, high=0.6)
    return shared + tint * draws.normal(count, inputs, 3)
