"""Morlet wavelets on a periodic square, and the Gaussian that averages after them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["FilterBank", "coarser", "filter_bank", "gaussian_window", "morlet_wavelet"]

_WIDTH = 0.8  # of the Gaussian of the finest wavelet, in pixels
_FREQUENCY = 0.75 * np.pi  # of the finest wavelet


@dataclass(frozen=True, eq=False)
class FilterBank:
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
def filter_bank(side: int, scales: int, orientations: int) -> FilterBank:
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
    return FilterBank(_transformed(average), wavelets)


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
