"""A GPU kernel that multiplies the rows of a tensor, and leaves rows out, in a single pass."""

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["can_scale", "scaled_rows"]

_BLOCK = 4096


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _scale(  # type: ignore[no-untyped-def]
    values,  # noqa: ANN001 - Triton evaluates annotations, and knows none for pointers
    weights,  # noqa: ANN001
    result,  # noqa: ANN001
    size,  # noqa: ANN001
    block: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weights + row)
    index = tl.program_id(1) * block + tl.arange(0, block)
    known = index < size
    # A row that weighs nothing is not read.
    value = tl.load(values + row * size + index, mask=known & (weight != 0.0), other=0.0)
    tl.store(result + row * size + index, value.to(tl.float32) * weight, mask=known)


def can_scale(values: Tensor) -> bool:
    """Return whether the kernel takes a tensor: each row is a piece of memory of its own.

    In which order the numbers of a row lie there does not matter.
    """
    orders = torch.contiguous_format, torch.channels_last
    return values.itemsize <= 4 and any(values.is_contiguous(memory_format=one) for one in orders)


def scaled_rows(values: Tensor, weights: Tensor) -> Tensor:
    """Return each row times its weight in float32; a row of weight zero is zero, whatever it holds.

    Parameters
    ----------
    values : Tensor
        Which `can_scale`.
    weights : Tensor, shape (rows,)
        In float32.
    """
    result = torch.empty_like(values, dtype=torch.float32)
    size = values[0].numel()
    with torch.cuda.device_of(values):  # Triton runs on the current one
        _scale[(len(values), triton.cdiv(size, _BLOCK))](
            values, weights.contiguous(), result, size, block=_BLOCK
        )
    return result
