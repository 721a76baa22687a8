"""GPU kernels of GroupNorm for images whose channels come last, in any floating-point type.

Under autocast PyTorch's own runs in float32, and copies such images to another order and back.
Here numbers are read and written as they lie; only sums and statistics are float32.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["WIDEST_GROUP", "fused_group_norm"]

WIDEST_GROUP = 1024
"""The most channels of a group; a program holds whole groups."""

# Numbers that a program holds at once, and how many of them a thread does.
_TILE = 4096
_THREAD = 8
_FEWEST_CHANNELS, _MOST_CHANNELS = 32, 512


@triton.jit  # type: ignore[untyped-decorator]
def _over_groups(  # type: ignore[no-untyped-def]  # noqa: ANN202
    values,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    group_width: tl.constexpr,
    channel_block: tl.constexpr,
):
    """Return the sum over the group of every channel."""
    groups: tl.constexpr = channel_block // group_width
    sums = tl.sum(tl.reshape(values, [groups, group_width]), axis=1)
    return tl.reshape(tl.broadcast_to(sums[:, None], [groups, group_width]), [channel_block])


@triton.jit  # type: ignore[untyped-decorator]
def _normalise(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    inputs,  # noqa: ANN001
    weight,  # noqa: ANN001
    bias,  # noqa: ANN001
    outputs,  # noqa: ANN001
    means,  # noqa: ANN001
    scales,  # noqa: ANN001
    channels,  # noqa: ANN001
    positions,  # noqa: ANN001
    eps,  # noqa: ANN001
    group_width: tl.constexpr,
    channel_block: tl.constexpr,
    position_block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    known = channel < channels
    group = channel // group_width
    start_of_row = row * positions * channels
    # Variances from sums of squares lose their digits where the mean is large: the first number of
    # a group is usually close to it.
    origin = tl.load(inputs + start_of_row + group * group_width, mask=known, other=0.0)
    origin = origin.to(tl.float32)
    values = tl.zeros([position_block, channel_block], dtype=tl.float32)
    squares = tl.zeros([position_block, channel_block], dtype=tl.float32)
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        met = (position[:, None] < positions) & known[None, :]
        offset = start_of_row + position[:, None] * channels + channel[None, :]
        value = tl.load(inputs + offset, mask=met, other=0.0).to(tl.float32)
        value = tl.where(met, value - origin[None, :], 0.0)
        values += value
        squares += value * value
    count = 1.0 * (positions * group_width)
    shift = _over_groups(tl.sum(values, axis=0), group_width, channel_block) / count
    square = _over_groups(tl.sum(squares, axis=0), group_width, channel_block) / count
    variance = square - shift * shift
    # Not `tl.maximum`, which turns NaN into zero.
    variance = tl.where(variance < 0.0, 0.0, variance)
    mean, scale = origin + shift, tl.rsqrt(variance + eps)
    first = known & (channel % group_width == 0)
    offset_of_group = row * (channels // group_width) + group
    tl.store(means + offset_of_group, mean, mask=first)
    tl.store(scales + offset_of_group, scale, mask=first)
    factor = scale * tl.load(weight + channel, mask=known, other=0.0)
    term = tl.load(bias + channel, mask=known, other=0.0)
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        met = (position[:, None] < positions) & known[None, :]
        offset = start_of_row + position[:, None] * channels + channel[None, :]
        value = tl.load(inputs + offset, mask=met, other=0.0).to(tl.float32)
        value = (value - mean[None, :]) * factor[None, :] + term[None, :]
        tl.store(outputs + offset, value.to(outputs.dtype.element_ty), mask=met)


@triton.jit  # type: ignore[untyped-decorator]
def _go_back(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    inputs,  # noqa: ANN001
    gradients,  # noqa: ANN001
    weight,  # noqa: ANN001
    means,  # noqa: ANN001
    scales,  # noqa: ANN001
    found,  # noqa: ANN001
    sums,  # noqa: ANN001
    channels,  # noqa: ANN001
    positions,  # noqa: ANN001
    with_sums: tl.constexpr,
    group_width: tl.constexpr,
    channel_block: tl.constexpr,
    position_block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    known = channel < channels
    start_of_row = row * positions * channels
    offset_of_group = row * (channels // group_width) + channel // group_width
    mean = tl.load(means + offset_of_group, mask=known, other=0.0)
    scale = tl.load(scales + offset_of_group, mask=known, other=0.0)
    own = tl.load(weight + channel, mask=known, other=0.0)
    plain = tl.zeros([position_block, channel_block], dtype=tl.float32)
    product = tl.zeros([position_block, channel_block], dtype=tl.float32)
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        met = (position[:, None] < positions) & known[None, :]
        offset = start_of_row + position[:, None] * channels + channel[None, :]
        value = tl.load(inputs + offset, mask=met, other=0.0).to(tl.float32)
        gradient = tl.load(gradients + offset, mask=met, other=0.0).to(tl.float32)
        plain += gradient
        product += gradient * ((value - mean[None, :]) * scale[None, :])
    plain_sum, product_sum = tl.sum(plain, axis=0), tl.sum(product, axis=0)
    if with_sums:
        offset_of_sum = (row * channels + channel) * 2
        tl.store(sums + offset_of_sum, product_sum, mask=known)
        tl.store(sums + offset_of_sum + 1, plain_sum, mask=known)
    count = 1.0 * (positions * group_width)
    common = _over_groups(own * plain_sum, group_width, channel_block) / count
    slope = _over_groups(own * product_sum, group_width, channel_block) / count
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        met = (position[:, None] < positions) & known[None, :]
        offset = start_of_row + position[:, None] * channels + channel[None, :]
        value = tl.load(inputs + offset, mask=met, other=0.0).to(tl.float32)
        gradient = tl.load(gradients + offset, mask=met, other=0.0).to(tl.float32)
        normalised = (value - mean[None, :]) * scale[None, :]
        result = gradient * own[None, :] - common[None, :] - normalised * slope[None, :]
        result = result * scale[None, :]
        tl.store(found + offset, result.to(found.dtype.element_ty), mask=met)


def fused_group_norm(
    inputs: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """Return what ``torch.nn.functional.group_norm`` does, in the type of the input.

    Parameters
    ----------
    inputs : Tensor, shape (rows, channels, height, width)
        On a GPU, not empty. It is copied unless its channels come last in memory.
    groups : int
        How many groups the channels form. Each has a power of two of them, and at most
        `WIDEST_GROUP`.
    weight, bias : Tensor, shape (channels,)
        In float32.
    eps : float
        Added to variances.

    Returns
    -------
    Tensor, shape (rows, channels, height, width)
        Its channels come last in memory.
    """
    ordered = inputs.contiguous(memory_format=torch.channels_last)
    made = _FusedGroupNorm.apply(ordered, weight, bias, groups, eps)  # type: ignore[no-untyped-call]
    return cast("Tensor", made)


class _FusedGroupNorm(torch.autograd.Function):
    r"""``y = w n + b`` with ``n = (x - mean) / deviation`` over the numbers of a group.

    Backwards, ``dx = (w g - mean(w g) - n mean(w g n)) / deviation``, and the gradients of w and b
    are the sums of ``g n`` and g, added up only where they are asked for.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd hands all of them in by position
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float
    ) -> Tensor:
        outputs = torch.empty_like(inputs, memory_format=torch.channels_last)
        means = torch.empty(len(inputs), groups, dtype=torch.float32, device=inputs.device)
        scales = torch.empty_like(means)
        grid, blocks = _blocks(inputs, groups)
        _normalise[grid](
            *(inputs, weight.contiguous(), bias.contiguous(), outputs, means, scales),
            *(inputs.shape[1], inputs[0, 0].numel(), eps),
            **blocks,
        )
        ctx.save_for_backward(inputs, weight, means, scales)
        ctx.groups = groups
        return outputs

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None, None, None]:
        inputs, weight, means, scales = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        with_sums = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
        rows, channels = inputs.shape[:2]
        found = torch.empty_like(inputs, memory_format=torch.channels_last)
        sums = means.new_empty(rows if with_sums else 0, channels, 2)
        grid, blocks = _blocks(inputs, ctx.groups)
        _go_back[grid](
            *(inputs, gradient, weight.contiguous(), means, scales, found, sums),
            *(channels, inputs[0, 0].numel()),
            with_sums=with_sums,
            **blocks,
        )
        if not with_sums:
            return found, None, None, None, None
        of_weight, of_bias = sums.sum(0).unbind(1)
        return found, of_weight, of_bias, None, None


def _blocks(inputs: Tensor, groups: int) -> tuple[tuple[int, int], dict[str, int]]:
    """Return the grid of programs, and what each of them holds at once.

    A program takes whole groups of one row: few channels of a large image, so that what it reads
    twice is still in the cache, and many of a small one, so that its threads have work.
    """
    rows, channels = inputs.shape[:2]
    width = channels // groups
    length = triton.next_power_of_2(inputs[0, 0].numel())
    wanted = min(max(_TILE // length, _FEWEST_CHANNELS), _MOST_CHANNELS)
    channel_block = max(width, min(wanted, triton.next_power_of_2(channels)))
    position_block = min(length, _TILE // channel_block)
    warps = min(max(channel_block * position_block // (32 * _THREAD), 1), 16)
    return (rows, triton.cdiv(channels, channel_block)), {
        "group_width": width,
        "channel_block": channel_block,
        "position_block": position_block,
        "num_warps": warps,
    }
