"""One GPU kernel for the two sums that normalisation layers need: each number is read once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["fused_channel_sums"]

_TILE = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(  # noqa: PLR0917
    inputs,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    outputs,  # noqa: ANN001
    sums,  # noqa: ANN001
    products,  # noqa: ANN001
    channels,  # noqa: ANN001
    positions,  # noqa: ANN001
    row_stride,  # noqa: ANN001
    channel_stride,  # noqa: ANN001
    position_stride,  # noqa: ANN001
    channel_block: tl.constexpr,
    position_block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * channel_block + tl.arange(0, channel_block)
    total = tl.zeros([channel_block], dtype=tl.float32)
    product = tl.zeros([channel_block], dtype=tl.float32)
    known = channel < channels
    for start in range(0, positions, position_block):
        position = start + tl.arange(0, position_block)
        place = row * row_stride + channel[:, None] * channel_stride
        place += position[None, :] * position_stride
        met = known[:, None] & (position[None, :] < positions)
        gradient = tl.load(outputs + place, mask=met, other=0.0).to(tl.float32)
        value = tl.load(inputs + place, mask=met, other=0.0).to(tl.float32)
        total += tl.sum(gradient, axis=1)
        product += tl.sum(gradient * value, axis=1)
    tl.store(sums + row * channels + channel, total, mask=known)
    tl.store(products + row * channels + channel, product, mask=known)


def fused_channel_sums(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sum_p g`` and ``sum_p g x`` over the positions p of every row and channel.

    Parameters
    ----------
    inputs, outputs : Tensor, shape (rows, channels, positions)
        Of the same strides.
    """
    rows, channels, positions = inputs.shape
    sums = inputs.new_empty(rows, channels, dtype=torch.float32)
    products = torch.empty_like(sums)
    # Neighbours in memory are read together: positions, or channels where those come last.
    last = inputs.stride(1) == 1 and channels > 1
    channel_block = min(triton.next_power_of_2(channels), 64) if last else 1
    position_block = min(triton.next_power_of_2(positions), _TILE // channel_block)
    _add_up[(rows, triton.cdiv(channels, channel_block))](
        *(inputs, outputs, sums, products, channels, positions, *inputs.stride()),
        channel_block=channel_block,
        position_block=position_block,
    )
    return sums, products
