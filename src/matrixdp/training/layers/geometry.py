"""Which input pixels a convolution meets where."""

from dataclasses import dataclass

__all__ = ["Geometry"]


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
