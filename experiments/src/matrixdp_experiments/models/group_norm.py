"""GroupNorm that keeps the type and the order of images on a GPU."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.table import runs_as

__all__ = ["GroupNorm"]

_HALF = (torch.bfloat16, torch.float16)


class GroupNorm(nn.GroupNorm):
    """PyTorch's GroupNorm, with kernels of its own for images on a GPU.

    They run for images of 16 bits, and for those of float32 whose channels come last in memory.
    The output is of the input's type, also under autocast, where PyTorch's own is float32. All
    else is left to PyTorch: a processor, other shapes and types, groups whose number of channels is
    no power of two.

    Examples
    --------
    >>> GroupNorm(2, 4)(torch.zeros(3, 4, 5, 5)).shape
    torch.Size([3, 4, 5, 5])
    """

    @runs_as(nn.GroupNorm)
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - PyTorch's name
        """Return the normalised input."""
        if input.is_cuda and self._is_fit(input):
            from matrixdp_experiments.models.fused_group_norm import (  # noqa: PLC0415
                WIDEST_GROUP,
                fused_group_norm,
            )

            if self.num_channels // self.num_groups <= WIDEST_GROUP:
                return fused_group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def _is_fit(self, images: Tensor) -> bool:
        """Return whether the kernels can run, and gain something."""
        width = self.num_channels // self.num_groups
        if images.ndim != 4 or images.shape[1] != self.num_channels or not images.numel():
            return False
        last = images.is_contiguous(memory_format=torch.channels_last)
        kind = images.dtype in _HALF or (images.dtype == torch.float32 and last)
        # Without affine parameters these are None.
        parameters = cast("tuple[Tensor | None, ...]", (self.weight, self.bias))
        wide = all(part is not None and part.dtype == torch.float32 for part in parameters)
        return kind and wide and width & (width - 1) == 0
