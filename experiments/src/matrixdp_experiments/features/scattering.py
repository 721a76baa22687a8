"""The scattering transform of images: moduli of wavelet coefficients, averaged."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import positive_integer
from matrixdp_experiments.features.wavelets import FilterBank, coarser, filter_bank

__all__ = ["checked_images", "scattering"]

_BLOCK = 256  # images at a time: 81 maps of them fit into the cache's neighbourhood


def scattering(images: Any, *, scales: int = 2, orientations: int = 8) -> NDArray[np.float32]:
    """Return averages of images and of the moduli of their wavelet coefficients.

    With the average a, wavelets ``p_1, p_2, ...`` and convolution *, the maps of an image x are
    ``x * a``, then ``|x * p_1| * a`` for each wavelet, then ``||x * p_1| * p_2| * a`` for each pair
    whose second wavelet is coarser, at every ``2^scales``-th pixel (Bruna and Mallat, *Invariant
    scattering convolution networks*, 2013). Borders are filled with 0 to a multiple of
    ``2^scales``, with at least half of that on each side, and the images then repeat.

    Each image is transformed by itself, by filters that know none.

    Parameters
    ----------
    images : array_like, shape (images, side, side)
        Grey levels.
    scales : int, optional
        How many octaves.
    orientations : int, optional
        How many directions a half turn is divided into.

    Returns
    -------
    ndarray of float32, shape (images, maps, small, small)
        For 2 scales and 8 orientations there are 1 + 16 + 64 maps.

    Raises
    ------
    InvalidParameterError, ShapeError
        If these are not square images.

    Examples
    --------
    >>> import numpy as np
    >>> scattering(np.zeros((3, 28, 28))).shape
    (3, 81, 8, 8)
    """
    grey = checked_images(images)
    scales = positive_integer(scales, "scales")
    orientations = positive_integer(orientations, "orientations")
    padded = _padded(grey, 2**scales)
    bank = filter_bank(padded.shape[1], scales, orientations)
    blocks = [
        _scattered(padded[start : start + _BLOCK], bank) for start in range(0, len(padded), _BLOCK)
    ]
    return np.concatenate(blocks)


def checked_images(images: Any) -> NDArray[np.float32]:
    """Return square images as float32, or raise if they are not.

    Raises
    ------
    InvalidParameterError, ShapeError
        The message shows the shape and no pixel.
    """
    array = np.asarray(images)
    if array.dtype.kind not in "buif":
        raise InvalidParameterError("images must be numbers: pass grey levels")
    if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0:
        raise ShapeError(
            f"images have shape {array.shape}: pass at least one square image, as (images, side, "
            "side)"
        )
    grey = array.astype(np.float32)
    if not bool(np.isfinite(grey).all()):
        raise InvalidParameterError("images hold NaN or infinity: pass finite grey levels")
    return grey


def _padded(images: NDArray[np.float32], multiple: int) -> NDArray[np.float32]:
    side = images.shape[1]
    whole = -(-(side + multiple) // multiple) * multiple
    before = (whole - side) // 2
    ends = (before, whole - side - before)
    return np.pad(images, ((0, 0), ends, ends))


def _scattered(images: NDArray[np.float32], bank: FilterBank) -> NDArray[np.float32]:
    scales = len(bank.wavelets)
    averages = [coarser(bank.average, scale) for scale in range(scales)]

    def averaged(transform: NDArray[np.complex64], scale: int) -> NDArray[np.float32]:
        smooth = _every(transform * averages[scale], scales - scale)
        return np.asarray(fft.ifft2(smooth).real)

    def modulus(
        transform: NDArray[np.complex64], wavelet: NDArray[np.float32], halvings: int
    ) -> NDArray[np.complex64]:
        return np.asarray(fft.fft2(np.abs(fft.ifft2(_every(transform * wavelet, halvings)))))

    whole = fft.fft2(images)
    maps = [[averaged(whole, 0)], [], []]
    for fine in range(scales):
        for wavelet in bank.wavelets[fine]:
            once = modulus(whole, wavelet, fine)
            maps[1].append(averaged(once, fine))
            for coarse in range(fine + 1, scales):
                for second in bank.wavelets[coarse]:
                    twice = modulus(once, coarser(second, fine), coarse - fine)
                    maps[2].append(averaged(twice, coarse))
    return np.stack([each for order in maps for each in order], axis=1)


def _every(transform: NDArray[np.complex64], halvings: int) -> NDArray[np.complex64]:
    """Return the transform of every 2nd, 4th, ... pixel: the mean of the aliases."""
    parts, number = 2**halvings, transform.shape[0]
    kept = transform.shape[1] // parts
    folded = transform.reshape(number, parts, kept, parts, kept)
    return np.asarray(folded.mean(axis=(1, 3)))
