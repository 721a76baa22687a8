"""The scattering transform of images: moduli of wavelet coefficients, averaged.

The wavelets are Morlet's on a periodic square; a Gaussian averages after them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import positive_integer

__all__ = ["checked_images", "coarser", "gaussian_window", "morlet_wavelet", "scattering"]

_WIDTH = 0.8  # of the Gaussian of the finest wavelet, in pixels
_FREQUENCY = 0.75 * np.pi  # of the finest wavelet
_BLOCK = 256  # images at a time: 81 maps of them fit into the cache's neighbourhood


@dataclass(frozen=True, eq=False)
class _FilterBank:
    """The Fourier transforms of all filters, which are real.

    Attributes
    ----------
    average : ndarray, shape (side, side)
        The Gaussian; its value at frequency 0 is about 1.
    wavelets : tuple of tuple of ndarray
        By scale, the finest first, then by orientation.
    """

    average: NDArray[np.float32]
    wavelets: tuple[tuple[NDArray[np.float32], ...], ...]


@lru_cache(maxsize=4)
def _filter_bank(side: int, scales: int, orientations: int) -> _FilterBank:
    """Return the filters of a scattering transform.

    Angles are ``pi (o - l - 1) / orientations`` for l from 0, with o half the number of
    orientations, rounded up. The wavelets of scale j have the frequency ``3 pi / 2^(j + 2)`` and
    width ``0.8 2^j``; the average has the width of the coarsest.
    """
    first = orientations - orientations // 2 - 1
    wavelets = tuple(
        tuple(
            _transformed(
                morlet_wavelet(
                    side,
                    width=_WIDTH * 2.0**scale,
                    frequency=_FREQUENCY / 2.0**scale,
                    angle=np.pi * (first - turn) / orientations,
                    slant=4.0 / orientations,
                )
            )
            for turn in range(orientations)
        )
        for scale in range(scales)
    )
    average = gaussian_window(side, width=_WIDTH * 2.0 ** (scales - 1), angle=0.0, slant=1.0)
    return _FilterBank(_transformed(average), wavelets)


def morlet_wavelet(
    side: int, *, width: float, frequency: float, angle: float, slant: float
) -> NDArray[np.complex128]:
    """Return a plane wave in a Gaussian window, less the window's share that makes its sum 0.

    ``psi(x) = g(x) (exp(i k.x) - b)`` with the window g of `gaussian_window`, repeated with the
    period ``side``, and ``k = frequency (cos angle, sin angle)`` (Bruna and Mallat, *Invariant
    scattering convolution networks*, 2013).
    """
    window = gaussian_window(side, width=width, angle=angle, slant=slant)
    wave = _periodic_window(side, width, angle, slant, frequency)
    return np.asarray(wave - wave.sum() / window.sum() * window)


def gaussian_window(
    side: int, *, width: float, angle: float, slant: float
) -> NDArray[np.complex128]:
    """Return a Gaussian of that width along an angle and ``width / slant`` across, of sum about 1.

    It is repeated with the period ``side`` and has its centre at the first entry.
    """
    return _periodic_window(side, width, angle, slant, frequency=0.0)


def _periodic_window(
    side: int, width: float, angle: float, slant: float, frequency: float
) -> NDArray[np.complex128]:
    # Two periods on each side: beyond that it is 0 in float64 for all that fits into one.
    positions = np.arange(-2 * side, 3 * side)
    along = positions[:, None] * np.cos(angle) + positions[None, :] * np.sin(angle)
    across = positions[None, :] * np.cos(angle) - positions[:, None] * np.sin(angle)
    values = np.exp(-(along**2 + (slant * across) ** 2) / (2.0 * width**2) + 1j * frequency * along)
    folded = values.reshape(5, side, 5, side).sum(axis=(0, 2))
    return np.asarray(folded * slant / (2.0 * np.pi * width**2))


def _transformed(values: NDArray[np.complex128]) -> NDArray[np.float32]:
    # Real up to rounding: the value at -x is the complex conjugate of that at x.
    return np.fft.fft2(values).real.astype(np.float32)


def coarser(transform: NDArray[np.float32], halvings: int) -> NDArray[np.float32]:
    """Return the transform of a filter for a grid of every 2nd, 4th, ... pixel.

    In space it is 4 times every second value of the filter for each halving, so that sums over the
    coarser grid stay about the same; the transform of that is the sum of its aliases.
    """
    parts = 2**halvings
    kept = transform.shape[0] // parts
    return np.asarray(transform.reshape(parts, kept, parts, kept).sum(axis=(0, 2)))


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
    bank = _filter_bank(padded.shape[1], scales, orientations)
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


def _scattered(images: NDArray[np.float32], bank: _FilterBank) -> NDArray[np.float32]:
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
