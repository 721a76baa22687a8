"""From the uses of layers to one clipped sum: no example contributes more than its bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matrixdp.training.layers.use import PerExample, squared_norms_of, weighted_sum_of
from matrixdp.training.recording import MeasuredUse

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
    uses: Sequence[MeasuredUse],
    groups: Mapping[nn.Parameter, int],
    bounds: Sequence[float],
    *,
    half: bool = False,
) -> ClippedSum:
    """Clip each example's gradient, within each group of parameters, and add up the examples.

    Parameters
    ----------
    uses : sequence of MeasuredUse
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
    shared = _shared_gradients(uses)
    found = [measured.squared_norms for measured in uses if measured.squared_norms is not None]
    found.append({parameter: squared_norms_of(part) for parameter, part in shared.items()})
    norms = _group_norms(found, groups, len(bounds))
    limits = torch.tensor(bounds, dtype=torch.float64, device=norms.device)[:, None]
    margin = _HALF_MARGIN if half else _FLOAT32_MARGIN
    # An example without any gradient has norm 0: infinity is clamped to 1.
    factors = (limits / norms).clamp(max=1.0) * margin
    sums: dict[nn.Parameter, Tensor] = {}
    for _, use, squared_norms in uses:
        if squared_norms is not None:
            for group in sorted({groups[parameter] for parameter in use.parameters}):
                totals = use.weighted_sum(factors[group])
                sums |= {part: total for part, total in totals.items() if groups[part] == group}
    for parameter, part in shared.items():
        sums[parameter] = weighted_sum_of(part, factors[groups[parameter]])
    return ClippedSum(sums, norms)


def _shared_gradients(uses: Sequence[MeasuredUse]) -> PerExample:
    """Return the gradients of parameters with several uses, added up before any norm is taken."""
    shared = PerExample()
    for _, use, squared_norms in uses:
        if squared_norms is None:
            for parameter, part in use.gradients().items():
                shared[parameter] = shared[parameter] + part if parameter in shared else part
    return shared


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
