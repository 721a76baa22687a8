"""Features of small grey images, fixed by pen strokes and by no record."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import ShapeError
from matrixdp_experiments.features.pen_strokes import pen_strokes
from matrixdp_experiments.features.scattering import checked_images, scattering
from matrixdp_experiments.features.whitening import Whitening

__all__ = ["ImageFeatures"]

_BLOCK = 2048  # images at a time
_CONTRAST = 0.25  # added to the mean square of a pixel


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Scattering, local normalisation, and whitening by public images; rows have norm 1.

    All parts are public, and each row is a function of its image, so private records may be passed,
    and replacing one of them changes one row of norm 1. The last bits of a row may depend on the
    index of its image, as the results of float matrix products do; a removed record moves others to
    other indices.

    Attributes
    ----------
    side : int
        Of the images, in pixels.
    scales : int
        Octaves of the scattering transform.
    deviations : ndarray, shape (1, maps, 1, 1)
        The standard deviation of each map on public images.
    whitening : Whitening
        From all maps to the features.

    Examples
    --------
    >>> features = ImageFeatures.of_strokes(side=8, columns=16, strokes=200)
    >>> features(pen_strokes(3, side=8, seed=1)).shape
    (3, 16)
    """

    side: int
    scales: int
    deviations: NDArray[np.float32]
    whitening: Whitening

    @classmethod
    def of_strokes(
        cls, *, side: int = 28, columns: int = 400, strokes: int = 20_000, scales: int = 2
    ) -> Self:
        """Return features made from images of random pen strokes.

        Parameters
        ----------
        side : int, optional
            Of the images, in pixels.
        columns : int, optional
            How many features.
        strokes : int, optional
            How many images of strokes.
        scales : int, optional
            Octaves of the scattering transform.
        """
        maps = scattering(pen_strokes(strokes, side=side), scales=scales)
        deviations = maps.std(axis=(0, 2, 3), keepdims=True)
        rows = normalised(maps / deviations)
        return cls(side, scales, deviations, Whitening.of(rows, columns))

    def __call__(self, images: Any) -> NDArray[np.float32]:
        """Return one row of norm 1 for each image.

        Parameters
        ----------
        images : array_like, shape (images, side, side)
            Grey levels from 0, the background, to 1.

        Raises
        ------
        InvalidParameterError, ShapeError
            If these are not images of that side.
        """
        grey = checked_images(images)
        if grey.shape[1] != self.side:
            raise ShapeError(f"images have side {grey.shape[1]}: these features are of {self.side}")
        blocks = (grey[start : start + _BLOCK] for start in range(0, len(grey), _BLOCK))
        return np.concatenate([self._features(block) for block in blocks])

    def _features(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        maps = scattering(images, scales=self.scales)
        return self.whitening(normalised(maps / self.deviations))


def normalised(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return maps as rows, with those after the first divided by their strength at each pixel.

    The strength is ``sqrt(m + 1/4)`` with m the mean square of all maps after the first at that
    pixel: it evens out pen widths and leaves empty pixels empty.
    """
    strength = np.sqrt(np.square(maps[:, 1:]).mean(axis=1, keepdims=True) + _CONTRAST)
    evened = np.concatenate([maps[:, :1], maps[:, 1:] / strength], axis=1)
    return np.asarray(evened.reshape(len(maps), -1))
