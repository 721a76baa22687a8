"""The precision of a device's multiplications, under what the user allows."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

__all__ = ["factor_rounding", "multiplies_coarsely", "wide_product", "without_autocast"]

# bfloat16 has 8 bits: rounding to the nearest is off by half a unit of the last one.
_BFLOAT16 = 2.0**-8
# TF32 has 11 bits, and tensor cores may cut off the others.
_TF32 = 2.0**-10


def multiplies_coarsely() -> bool:
    """Return whether the CPU may multiply float32 numbers as numbers of 16 bits or TF32."""
    backends = (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv)  # type: ignore[attr-defined]
    return any(backend.fp32_precision not in ("none", "ieee") for backend in backends)


def factor_rounding(factor: Tensor) -> float:
    """Return how far the factors of a product may be rounded, relative to their sizes, together.

    Parameters
    ----------
    factor : Tensor
        One of two factors of the same type. One of them is multiplied by a weight and rounded to
        that type before both are multiplied.
    """
    if factor.element_size() < 4:
        return _BFLOAT16  # the one that is scaled; the other one stays what it is
    if factor.is_cuda:
        return 2.0 * _TF32
    return 2.0 * _BFLOAT16 if multiplies_coarsely() else 2.0**-23


def wide_product(left: Tensor, right: Tensor) -> Tensor:
    """Return a product of two matrices that is added up, and returned, with 32 bits or more.

    torch rounds products of 16-bit matrices to 16 bits. A sum over a thousand examples would then
    be rounded by more than any one of them adds to it.
    """
    if left.element_size() >= 4:
        return left @ right
    if left.is_cuda:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.to(torch.float32) @ right.to(torch.float32)


@contextmanager
def without_autocast(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Leave the types of numbers as they are within the block, on the devices of some tensors.

    The bounds of norms, and the margins of clipping, hold for products in the type of their
    factors. Autocast would form them in 16 bits, whose rounding may be as large as a norm.
    """
    kinds = sorted({tensor.device.type for tensor in tensors})
    with ExitStack() as stack:
        for kind in kinds:
            if torch.amp.is_autocast_available(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
