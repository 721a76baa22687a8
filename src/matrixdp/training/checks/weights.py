"""Weights for a check: none that is trained so small that what comes after it would not show."""

import math
from collections.abc import Iterable

import torch
from torch import nn

__all__ = ["enlarge"]

_SMALL = 0.01
# So large are gates and biases instead. A matrix keeps the size of what it multiplies.
_GATE = 0.5


def enlarge(parameters: Iterable[nn.Parameter]) -> None:
    """Fill parameters that are zero or tiny with made-up numbers of ordinary size.

    Last layers, gates of residual branches and adapters often begin at zero. Nothing that mixes
    records behind them would reach a loss, until the first step has changed them.

    Parameters
    ----------
    parameters : iterable of Parameter
        Those that are trained; others stay what they are.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    for parameter in parameters:
        if not parameter.numel():
            continue
        size = _GATE if parameter.ndim < 2 else math.sqrt(len(parameter) / parameter.numel())
        wide = parameter.detach().to(torch.float32)
        if float(wide.square().mean().sqrt()) < _SMALL * size:
            # Never near zero themselves.
            numbers = 0.5 + torch.rand(parameter.shape, generator=generator, device="cpu")
            signs = 1.0 - 2.0 * torch.randint(2, parameter.shape, generator=generator, device="cpu")
            with torch.no_grad():
                parameter.copy_(size * numbers * signs)
