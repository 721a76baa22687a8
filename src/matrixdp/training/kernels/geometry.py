"""Geometry of convolutions: the input pixels that each output position meets."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

__all__ = ["Geometry", "geometry_and_sides"]


@dataclass(frozen=True)
class Geometry:
    """The shape of a convolution in two dimensions: (vertical, horizontal) each.

    ``padding`` is that of zeros before the first row and column; what other paddings add is part of
    the input already.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    groups: int

    def window(self, axis: int, offset: int, length: int) -> slice:
        """Return the padded input positions that an offset of the kernel meets along an axis."""
        start = offset * self.dilation[axis]
        return slice(start, start + self.stride[axis] * (length - 1) + 1, self.stride[axis])

    def met(self, axis: int, offset: int, inside: int, length: int) -> tuple[slice, slice]:
        """Return the outputs that an offset gives an unpadded input, and these inputs."""
        stride = self.stride[axis]
        shift = offset * self.dilation[axis] - self.padding[axis]
        first = max(0, -(shift // stride))  # the first output whose input is not before the start
        last = min(length, (inside - 1 - shift) // stride + 1)
        count = max(0, last - first)
        start = first * stride + shift
        return slice(first, first + count), slice(start, start + stride * count, stride)


def geometry_and_sides(
    module: nn.Conv1d | nn.Conv2d, kernel: Sequence[int]
) -> tuple[Geometry, list[int]]:
    """Return what a convolution does now, and its padding: left, right, top and bottom.

    Its attributes may have been changed since it was made. As in torch, the kernel is that of the
    weight; ``padding`` is what counts for zeros, and what was derived from it when the layer was
    made for all other modes, which are not part of the geometry.
    """
    axes = len(kernel)
    size, dilation = _pair(kernel, axes, 1), _pair(module.dilation, axes, 1)
    zeros = module.padding_mode == "zeros"
    if zeros:
        before, after = _padding(module.padding, size, dilation, axes)
        sides = [before[1], after[1], before[0], after[0]]
    else:
        before = (0, 0)
        sides = [*module._reversed_padding_repeated_twice, 0, 0][:4]  # noqa: SLF001
    return Geometry(size, _pair(module.stride, axes, 1), dilation, before, module.groups), sides


def _padding(
    padding: str | int | Sequence[int], size: tuple[int, int], dilation: tuple[int, int], axes: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return how many zeros there are before and after each axis."""
    if padding == "same":
        whole = [(size[axis] - 1) * dilation[axis] for axis in (0, 1)]
        # torch puts what it cannot halve after the last row and column
        before = (whole[0] // 2, whole[1] // 2)
        return before, (whole[0] - before[0], whole[1] - before[1])
    both = (0, 0) if isinstance(padding, str) else _pair(padding, axes, 0)
    return both, both


def _pair(sizes: int | Sequence[int], axes: int, absent: int) -> tuple[int, int]:
    """Return sizes in two dimensions, where one number stands for all axes of the convolution."""
    numbers = [sizes] if isinstance(sizes, int) else sizes
    return (absent if axes == 1 else numbers[0]), numbers[-1]
