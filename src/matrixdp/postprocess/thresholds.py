"""Soft thresholds: of singular values, and of entries."""

import math
from dataclasses import dataclass

import numpy as np

from matrixdp.covariance import Covariance
from matrixdp.parameters import positive_number
from matrixdp.postprocess.noise_law import noise_law
from matrixdp.postprocess.risk import best_threshold
from matrixdp.postprocess.spectrum import Spectrum
from matrixdp.postprocess.step import FloatArray, Shape, Step

__all__ = ["EntryThreshold", "SingularValueThreshold"]


@dataclass(frozen=True)
class _Threshold(Step):
    """A soft threshold that is given, or follows from the noise."""

    threshold: float | None = None

    def __post_init__(self) -> None:
        """Raise unless the threshold is positive and finite."""
        if self.threshold is not None:
            positive = positive_number(self.threshold, "threshold")
            object.__setattr__(self, "threshold", positive)

    @property
    def needs_noise(self) -> bool:
        """Whether the threshold is to follow from the noise."""
        return self.threshold is None


@dataclass(frozen=True)
class SingularValueThreshold(_Threshold):
    """Take a threshold off every singular value, and set those below it to 0.

    Parameters
    ----------
    threshold : float, optional
        By default the one for which Stein's unbiased estimate of the squared error is least. That
        needs no asymptotics and no low rank, and is found exactly. A threshold that is given must
        not come from the private data.

    Notes
    -----
    The result minimises ``||A - Y||_F^2 / 2 + threshold * ||A||_nuclear``. For a
    `SymmetricIsotropic` release the eigenvalues are moved towards 0, and the estimate is that of
    symmetric noise.

    References
    ----------
    Candès, Sing-Long and Trzasko, *Unbiased risk estimates for singular value thresholding and
    spectral estimators*, IEEE Trans. Signal Process. 61 (2013).

    Examples
    --------
    >>> print(SingularValueThreshold())
    singular values soft-thresholded where Stein's estimate of the error is least
    >>> from matrixdp import Isotropic
    >>> SingularValueThreshold(2.0).apply(np.diag([5.0, 1.0]), Isotropic(1.0)).tolist()
    [[3.0, 0.0], [0.0, 0.0]]
    """

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise if the threshold is to be found for noise that has several scales."""
        del shape
        if self.threshold is None:
            noise_law(covariance, "SingularValueThreshold without a threshold")

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix with its singular values thresholded."""
        spectrum = Spectrum.of(value)
        threshold = self.threshold
        if threshold is None:
            law = noise_law(covariance, "SingularValueThreshold without a threshold")
            shape = (value.shape[0], value.shape[1])
            scaled = spectrum.values / law.scale
            threshold = law.scale * best_threshold(scaled, shape, symmetric=law.symmetric)
        return spectrum.with_sizes(np.maximum(spectrum.sizes - threshold, 0.0))

    def __str__(self) -> str:
        """Say which threshold."""
        if self.threshold is None:
            return "singular values soft-thresholded where Stein's estimate of the error is least"
        return f"singular values soft-thresholded at {self.threshold!r}"


@dataclass(frozen=True)
class EntryThreshold(_Threshold):
    """Move every entry towards 0 by a threshold, and set those below it to 0.

    For matrices most of whose entries are 0 or negligible.

    Parameters
    ----------
    threshold : float, optional
        By default ``sigma * sqrt(2 log(m n))`` with sigma the noise scale of the entry: so large
        that noise alone rarely exceeds it anywhere. It fits noise of every shape. A threshold that
        is given must not come from the private data.

    References
    ----------
    Donoho and Johnstone, *Ideal spatial adaptation by wavelet shrinkage*, Biometrika 81 (1994).

    Examples
    --------
    >>> from matrixdp import Isotropic
    >>> EntryThreshold(2.0).apply(np.array([[5.0, -1.0, -3.0]]), Isotropic(1.0)).tolist()
    [[3.0, 0.0, -1.0]]
    """

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix with its entries thresholded."""
        threshold: float | FloatArray | None = self.threshold
        if threshold is None:
            shape = (value.shape[0], value.shape[1])
            threshold = covariance.entry_scales(shape) * math.sqrt(2.0 * math.log(value.size))
        # Adding 0 makes 0 of -0.
        return np.copysign(np.maximum(np.abs(value) - threshold, 0.0), value) + 0.0

    def __str__(self) -> str:
        """Say which threshold."""
        if self.threshold is None:
            return "entries soft-thresholded at sqrt(2 log(m n)) times their noise scale"
        return f"entries soft-thresholded at {self.threshold!r}"
