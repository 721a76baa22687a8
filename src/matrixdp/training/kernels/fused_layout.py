"""A GPU kernel that brings images into another order in memory and another type in one pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["channels_last"]

_BLOCK = 64


@triton.jit  # type: ignore[untyped-decorator]
def _copy(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    source,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    result,  # noqa: ANN001
    channels,  # noqa: ANN001
    positions,  # noqa: ANN001
    row_stride,  # noqa: ANN001
    channel_stride,  # noqa: ANN001
    position_stride,  # noqa: ANN001
    block: tl.constexpr,
) -> None:
    # Only the first axis of a grid takes as many programs as there may be rows and positions.
    blocks = tl.cdiv(positions, block)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    position = (tl.program_id(0) % blocks) * block + tl.arange(0, block)
    channel = tl.program_id(1) * block + tl.arange(0, block)
    offset = channel[:, None] * channel_stride + position[None, :] * position_stride
    met = (channel < channels)[:, None] & (position < positions)[None, :]
    values = tl.load(source + row * row_stride + offset, mask=met, other=0.0)
    offset = position[:, None] * channels + channel[None, :]
    tl.store(
        result + row * channels * positions + offset,
        tl.trans(values).to(result.dtype.element_ty),
        mask=tl.trans(met),
    )


def channels_last(images: Tensor, dtype: torch.dtype) -> Tensor:
    """Return images in a type, with the channels of a pixel together in memory.

    Parameters
    ----------
    images : Tensor, shape (rows, channels, height, width)
        On a GPU.
    dtype : torch.dtype
        Of the result.
    """
    if images.dtype == dtype and images.stride(1) == 1:
        return images
    rows, channels, height, width = images.shape
    flat = images.flatten(2)
    result = torch.empty_like(images, dtype=dtype, memory_format=torch.channels_last)
    grid = rows * triton.cdiv(height * width, _BLOCK), triton.cdiv(channels, _BLOCK)
    with torch.cuda.device_of(images):  # Triton runs on the current one
        _copy[grid](*(flat, result, channels, height * width, *flat.stride()), block=_BLOCK)
    return result
