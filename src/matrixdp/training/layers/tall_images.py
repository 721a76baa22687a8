"""Images of several views, one below the other, so that a shift down is a shift of one long row."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["TallImages", "aligned"]

# Fast matrix products want rows that start at multiples of 16 bytes.
_ALIGNMENT_BYTES = 16


def aligned(width: int, like: Tensor, *, channels_last: bool) -> int:
    """Return a length of rows, at least the width, that starts every row at a multiple of 16 bytes.

    With channels last a pixel is a multiple of its channels, and nothing has to be added.
    """
    step = 1 if channels_last else _ALIGNMENT_BYTES // like.element_size()
    return -(-width // step) * step


@dataclass(frozen=True)
class TallImages:
    """Images of an example's views, one below the other, with rows of one length."""

    examples: int
    views: int
    rows: int
    length: int
    channels_last: bool

    def zeros(self, like: Tensor, channels: int) -> Tensor:
        """Return empty images, of shape (examples, views, channels, rows, length)."""
        if self.channels_last:
            shape = (self.examples, self.views, self.rows, self.length, channels)
            return like.new_zeros(shape).permute(0, 1, 4, 2, 3)
        shape = (self.examples, channels, self.views, self.rows, self.length)
        return like.new_zeros(shape).permute(0, 2, 1, 3, 4)

    def embedded(self, outputs: Tensor) -> Tensor:
        """Return (views of) output gradients in images, flattened."""
        channels, height, width = outputs.shape[1:]
        source = outputs.unflatten(0, (self.examples, self.views))
        if self.views == 1 and width == self.length:
            return source[:, 0].flatten(2)  # its rows are as long as they have to be
        image = self.zeros(outputs, channels)
        image[..., :height, :width] = source
        return self.flattened(image)

    def flattened(self, images: Tensor) -> Tensor:
        """Return images as (examples, channels, positions), without a copy."""
        return images.permute(0, 2, 1, 3, 4).flatten(2)
