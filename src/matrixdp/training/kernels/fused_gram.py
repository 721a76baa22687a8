"""One GPU kernel that shifts, adds up and multiplies Gram matrices, and writes none of it.

Written out, the Gram matrix of patches would be read and written once for each of the kernel's
offsets; here it stays in registers.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from matrixdp.training.kernels.geometry import Geometry

__all__ = ["fused_rows"]


@triton.jit  # type: ignore[untyped-decorator]
def _shift_and_multiply(  # type: ignore[no-untyped-def]  # noqa: PLR0917
    pixels,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    made,  # noqa: ANN001
    rows,  # noqa: ANN001
    diagonal,  # noqa: ANN001
    positions,  # noqa: ANN001
    height: tl.constexpr,
    width: tl.constexpr,
    out_width: tl.constexpr,
    kernel_height: tl.constexpr,
    kernel_width: tl.constexpr,
    stride_down: tl.constexpr,
    stride_across: tl.constexpr,
    dilation_down: tl.constexpr,
    dilation_across: tl.constexpr,
    padding_down: tl.constexpr,
    padding_across: tl.constexpr,
    block: tl.constexpr,
) -> None:
    example = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1)
    s = tl.arange(0, block)
    live = s < positions
    size: tl.constexpr = height * width
    base = pixels + example * size * size
    t_down, t_across = (t // out_width) * stride_down, (t % out_width) * stride_across
    s_down, s_across = (s // out_width) * stride_down, (s % out_width) * stride_across
    patches = tl.zeros([block], dtype=tl.float32)
    for i in tl.static_range(kernel_height):
        for j in tl.static_range(kernel_width):
            down = i * dilation_down - padding_down
            across = j * dilation_across - padding_across
            y, x = t_down + down, t_across + across
            v, u = s_down + down, s_across + across
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            met = live & inside & (v >= 0) & (v < height) & (u >= 0) & (u < width)
            patches += tl.load(base + (y * width + x) * size + v * width + u, mask=met, other=0.0)
    row = example * positions + t
    outer = tl.load(made + row * positions + s, mask=live, other=0.0)
    tl.store(rows + row, tl.sum(patches * outer, axis=0))
    tl.store(diagonal + row, tl.sum(tl.where(s == t, patches, 0.0), axis=0))


def fused_rows(
    pixels: Tensor,
    made: Tensor,
    inside: Sequence[int],
    outside: Sequence[int],
    geometry: Geometry,
) -> tuple[Tensor, Tensor]:
    """Return ``sum_s K_x[t,s] K_g[t,s]`` and ``K_x[t,t]`` for every example and position t."""
    examples, positions = made.shape[:2]
    rows = made.new_empty(examples, positions)
    diagonal = torch.empty_like(rows)
    with torch.cuda.device_of(made):  # Triton runs on the current one
        _shift_and_multiply[(examples, positions)](
            *(pixels, made, rows, diagonal, positions),
            *(inside[0], inside[1], outside[1]),
            *(*geometry.kernel, *geometry.stride, *geometry.dilation, *geometry.padding),
            block=triton.next_power_of_2(positions),
        )
    return rows, diagonal
