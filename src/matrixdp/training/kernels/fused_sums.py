"""One GPU kernel for the sums that normalisation layers need: each number is read once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["fused_channel_sums"]

_TILE = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    inputs,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    outputs,  # noqa: ANN001
    origins,  # noqa: ANN001
    sums,  # noqa: ANN001
    channels,  # noqa: ANN001
    positions,  # noqa: ANN001
    input_row,  # noqa: ANN001
    input_channel,  # noqa: ANN001
    input_position,  # noqa: ANN001
    output_row,  # noqa: ANN001
    output_channel,  # noqa: ANN001
    output_position,  # noqa: ANN001
    group_width: tl.constexpr,
    channel_block: tl.constexpr,
    position_block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    known = channel < channels
    group = row * (channels // group_width) + channel // group_width
    origin = tl.load(origins + group, mask=known, other=0.0)
    gradients = tl.zeros([channel_block], dtype=tl.float32)
    products = tl.zeros([channel_block], dtype=tl.float32)
    values = tl.zeros([channel_block], dtype=tl.float32)
    squares = tl.zeros([channel_block], dtype=tl.float32)
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        met = known[:, None] & (position[None, :] < positions)
        offset = channel[:, None] * output_channel + position[None, :] * output_position
        gradient = tl.load(outputs + row * output_row + offset, mask=met, other=0.0).to(tl.float32)
        offset = channel[:, None] * input_channel + position[None, :] * input_position
        value = tl.load(inputs + row * input_row + offset, mask=met, other=0.0).to(tl.float32)
        value = tl.where(met, value - origin[:, None], 0.0)
        gradients += tl.sum(gradient, axis=1)
        products += tl.sum(gradient * value, axis=1)
        values += tl.sum(value, axis=1)
        squares += tl.sum(value * value, axis=1)
    offset = (row * channels + channel) * 4
    tl.store(sums + offset, gradients, mask=known)
    tl.store(sums + offset + 1, products, mask=known)
    tl.store(sums + offset + 2, values, mask=known)
    tl.store(sums + offset + 3, squares, mask=known)


def fused_channel_sums(inputs: Tensor, outputs: Tensor, origins: Tensor) -> Tensor:
    """Return the sums of ``g``, ``g y``, ``y`` and ``y^2`` of every row and channel.

    y is x less the origin of the channel's group in that row.

    Parameters
    ----------
    inputs, outputs : Tensor, shape (rows, channels, positions)
        x and g, in any order in memory.
    origins : Tensor, shape (rows, groups)
        In float32.

    Returns
    -------
    Tensor, shape (rows, channels, 4)
        In float32.
    """
    rows, channels, positions = inputs.shape
    origins = origins.contiguous()
    sums = torch.empty(rows, channels, 4, dtype=torch.float32, device=inputs.device)
    # Neighbours in memory are read together: positions, or channels where those come last. Small
    # images leave room for several channels.
    last = 1 in (inputs.stride(1), outputs.stride(1)) and channels > 1
    most, length = triton.next_power_of_2(channels), triton.next_power_of_2(positions)
    position_block = min(length, _TILE // min(most, 64) if last else _TILE)
    channel_block = min(most, _TILE // position_block)
    with torch.cuda.device_of(inputs):  # Triton runs on the current one
        _add_up[(rows, triton.cdiv(channels, channel_block))](
            *(inputs, outputs, origins, sums, channels, positions),
            *(*inputs.stride(), *outputs.stride()),
            group_width=channels // origins.shape[1],
            channel_block=channel_block,
            position_block=position_block,
        )
    return sums
