"""From the uses of layers to one clipped sum: no example contributes more than its bound."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matrixdp.training.layers.use import LayerUse, PerExample, squared_norms_of, weighted_sum_of

__all__ = ["ClippedSum", "clipped_sum"]

# Factors are rounded to float32 and multiplied once more: both stay within this.
_FLOAT32_MARGIN = 1.0 - 2.0**-21
# Gradients that autocast keeps in 16 bits are rounded again when they are scaled, by 2**-9 each.
_HALF_MARGIN = 1.0 - 2.0**-7


@dataclass(frozen=True)
class ClippedSum:
    """The clipped sum of a batch.

    Attributes
    ----------
    sums : mapping of parameters to tensors
        ``sum_e min(1, bound / norm_e) gradient_e`` for each parameter.
    norms : Tensor, shape (groups, examples)
        What each example was clipped by: its norm, rounded up, in float64.
    """

    sums: Mapping[nn.Parameter, Tensor]
    norms: Tensor


def clipped_sum(
    uses: Sequence[LayerUse],
    groups: Mapping[nn.Parameter, int],
    bounds: Sequence[float],
    *,
    half: bool = False,
) -> ClippedSum:
    """Clip each example's gradient, within each group of parameters, and add up the examples.

    Parameters
    ----------
    uses : sequence of LayerUse
        Every use of every parameter in one batch.
    groups : mapping of parameters to int
        The group of each parameter.
    bounds : sequence of float
        The largest norm of an example's gradient in each group.
    half : bool, optional
        Whether gradients of activations have 16 bits.

    Notes
    -----
    *Guarantee:* the factor of an example is at most ``bound / norm`` for an upper bound of its
    norm, the rounding of factors and of scaled gradients included. How the sum itself is rounded
    depends on the kernels that form it, and is not covered here.
    """
    alone, shared = _divided(uses)
    found = [use.squared_norms() for use in alone]
    found.append({parameter: squared_norms_of(part) for parameter, part in shared.items()})
    norms = _group_norms(found, groups, len(bounds))
    limits = torch.tensor(bounds, dtype=torch.float64, device=norms.device)[:, None]
    margin = _HALF_MARGIN if half else _FLOAT32_MARGIN
    # An example without any gradient has norm 0: infinity is clamped to 1.
    factors = (limits / norms).clamp(max=1.0) * margin
    sums: dict[nn.Parameter, Tensor] = {}
    for use in alone:
        for group in sorted({groups[parameter] for parameter in use.parameters}):
            for parameter, total in use.weighted_sum(factors[group]).items():
                if groups[parameter] == group:
                    sums[parameter] = total
    for parameter, part in shared.items():
        sums[parameter] = weighted_sum_of(part, factors[groups[parameter]])
    return ClippedSum(sums, norms)


def _divided(uses: Sequence[LayerUse]) -> tuple[list[LayerUse], PerExample]:
    """Return the uses of parameters with one use, and the gradients of all others.

    Gradients of several uses add up before their norm is taken.
    """
    count = Counter(parameter for use in uses for parameter in use.parameters)
    alone, shared = [], PerExample()
    for use in uses:
        if all(count[parameter] == 1 for parameter in use.parameters):
            alone.append(use)
            continue
        for parameter, part in use.gradients().items():
            shared[parameter] = shared[parameter] + part if parameter in shared else part
    return alone, shared


def _group_norms(
    found: Sequence[PerExample], groups: Mapping[nn.Parameter, int], number: int
) -> Tensor:
    """Return the norms of all examples in each group, rounded up."""
    squares: list[list[Tensor]] = [[] for _ in range(number)]
    for norms in found:
        for parameter, values in norms.items():
            squares[groups[parameter]].append(values)
    like = next(values for group in squares for values in group)
    totals = [torch.stack(group).sum(0) if group else torch.zeros_like(like) for group in squares]
    # float64 sums of a few hundred terms and a root: far below the margin of the factors.
    return torch.stack(totals).sqrt()
