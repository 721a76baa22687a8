"""From the uses of layers to one clipped sum: no example contributes more than its bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers.precision import multiplies_coarsely, without_autocast
from matrixdp.training.layers.use import (
    MeasuredUse,
    PerExample,
    norm_bounds_of,
    weighted_sum_of,
    without,
)

__all__ = ["ClippedSum", "clipped_sum"]

# Factors are rounded to float32 and multiplied once more: both stay within this. No margin is for
# the rounding of the sum itself.
_FLOAT32_MARGIN = 1.0 - 2.0**-21
# Gradients that autocast keeps in bfloat16 are rounded again when they are scaled, by 2**-8 each;
# their sum is not.
_HALF_MARGIN = 1.0 - 2.0**-7
# A GPU may multiply in TF32, which rounds or cuts both factors of a product after 11 bits.
_TF32_MARGIN = 1.0 - 2.0**-9
# More than underflow can take from a norm: a gradient would need 2**44 elements, all below 2**-62.
_LOST_TO_UNDERFLOW = 2.0**-40
# Smaller factors count as zero. Any other is a normal float32 number, which rounding moves by a
# share only. What it scales may still underflow, by up to 2**-126 an element; times the factor,
# what every norm was padded by is more than that (least of all in Gram matrices: by 2**-74).
_LEAST_FACTOR = 2.0**-50


@dataclass(frozen=True)
class ClippedSum:
    """The clipped sum of a batch.

    Attributes
    ----------
    sums : mapping of parameters to tensors
        ``sum_e min(1, bound / norm_e) gradient_e`` for each parameter.
    norms : Tensor, shape (groups, examples)
        What each example was clipped by: its norm, rounded up, in float64. It may not be finite.
    """

    sums: Mapping[nn.Parameter, Tensor]
    norms: Tensor


def clipped_sum(
    uses: Sequence[MeasuredUse],
    groups: Mapping[nn.Parameter, int],
    bounds: Sequence[float],
    *,
    half: bool = False,
    counts: Tensor | None = None,
    captured: bool = False,
) -> ClippedSum:
    """Clip each example's gradient, within each group of parameters, and add up the examples.

    Parameters
    ----------
    uses : sequence of MeasuredUse
        Every use of every parameter in one batch; they are used up.
    groups : mapping of parameters to int
        The group of each parameter.
    bounds : sequence of float
        The largest norm of an example's gradient in each group.
    half : bool, optional
        Whether gradients of activations have 16 bits.
    counts : Tensor, optional
        For each example whether it may add anything: not if it only fills up the batch, or if its
        loss is not finite.
    captured : bool, optional
        Whether this is captured as a graph, which cannot wait for its device.

    Notes
    -----
    *Guarantee:* the factor of an example is at most ``bound / norm`` for an upper bound of its
    norm, the rounding of factors and of scaled gradients included. An example whose norm is more
    than 2**49 times its bound adds nothing, and one whose norm in some group is not finite adds
    nothing in any; the sum is finite in every case. How the sum itself is rounded depends on the
    kernels that form it, and is not covered here.
    """
    with without_autocast(groups):
        return _clipped_sum(uses, groups, bounds, half=half, counts=counts, captured=captured)


def _clipped_sum(
    uses: Sequence[MeasuredUse],
    groups: Mapping[nn.Parameter, int],
    bounds: Sequence[float],
    *,
    half: bool,
    counts: Tensor | None,
    captured: bool,
) -> ClippedSum:
    shared = _shared_gradients(uses)
    found = [measured.norm_bounds for measured in uses if measured.norm_bounds is not None]
    found.append({parameter: norm_bounds_of(tensor) for parameter, tensor in shared.items()})
    norms = _group_norms(found, groups, len(bounds))
    margin = _margin(norms.device, half=half)
    sums: dict[nn.Parameter, Tensor] = {}
    factors = [_factors(norms[group], bound, margin) for group, bound in enumerate(bounds)]
    spoilt = ~norms.isfinite().all(0)
    # Losses may be on another device than the model.
    silent = spoilt if counts is None else spoilt | (counts.to(spoilt.device) == 0)
    # Once for all layers; the margin is for this, too.
    factors = [torch.where(silent, 0.0, factor).to(torch.float32) for factor in factors]
    # A CPU can tell at once whether there is anything to select. No other device is waited for.
    selects = captured or spoilt.device.type != "cpu" or bool(silent.any())
    for _, use, measured in uses:
        if measured is not None:
            if selects:
                use.leave_out(silent)
            for group in sorted({groups[parameter] for parameter in use.parameters}):
                totals = use.weighted_sum(factors[group])
                # Only what was measured: a hook may have frozen a parameter meanwhile.
                sums |= {
                    parameter: total
                    for parameter, total in totals.items()
                    if parameter in measured and groups[parameter] == group
                }
            # At once: forming the sum of the next layer takes memory as well.
            use.forget()
    for parameter, tensor in shared.items():
        gradients = without(tensor, silent) if selects else tensor
        sums[parameter] = weighted_sum_of(gradients, factors[groups[parameter]])
    return ClippedSum(sums, norms)


def _factors(norms: Tensor, bound: float, margin: float) -> Tensor:
    """Return what the gradient of each example is multiplied by."""
    # An example without any gradient has norm 0: infinity is clamped to 1.
    factors = (bound / norms).clamp(max=1.0) * margin
    # The other way round, NaN would become zero.
    return torch.where(factors < _LEAST_FACTOR, 0.0, factors)


def _margin(device: torch.device, *, half: bool) -> float:
    """Return what factors are multiplied by, so that rounding never lifts an example over."""
    if device.type == "cpu":
        half = half or multiplies_coarsely()
        return _HALF_MARGIN if half else _FLOAT32_MARGIN
    return _HALF_MARGIN if half else _TF32_MARGIN


def _shared_gradients(uses: Sequence[MeasuredUse]) -> PerExample:
    """Return the gradients of parameters with several uses, added up before any norm is taken."""
    shared = PerExample()
    for _, use, measured in uses:
        if measured is None:
            for parameter, tensor in use.gradients().items():
                shared[parameter] = shared[parameter] + tensor if parameter in shared else tensor
    return shared


def _group_norms(
    found: Sequence[Mapping[nn.Parameter, NormBounds]],
    groups: Mapping[nn.Parameter, int],
    number: int,
) -> Tensor:
    """Return the norms of all examples in each group, rounded up."""
    members: list[list[Tensor]] = [[] for _ in range(number)]
    shares = [0.0] * number
    for bounds in found:
        for parameter, (values, share) in bounds.items():
            group = groups[parameter]
            members[group].append(values)
            # One share for all of a group: the largest.
            shares[group] = max(shares[group], share)
    like = next(values for group in members for values in group)
    norms = [
        torch.linalg.vector_norm(_stacked(group), dim=0) * (1.0 + share + 2.0**-40)
        + _LOST_TO_UNDERFLOW
        if group
        else torch.zeros_like(like, dtype=torch.float64)
        for group, share in zip(members, shares, strict=True)
    ]
    return torch.stack(norms)


def _stacked(norms: Sequence[Tensor]) -> Tensor:
    """Return norms as rows in float64: of each type at once, as every operation is a launch."""
    kinds = dict.fromkeys(part.dtype for part in norms)
    rows = [torch.stack([part for part in norms if part.dtype == kind]) for kind in kinds]
    return torch.cat([part.to(torch.float64) for part in rows])
