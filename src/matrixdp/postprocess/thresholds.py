"""Soft thresholds: of singular values, and of entries.

By default the threshold of singular values is that of the least estimated risk (Stein's unbiased
estimate). It is found in units of the noise's scale. Between two neighbouring singular values the
estimate is a quadratic function of the threshold, so its minimum is found exactly.

Notation: d_1 >= d_2 >= ... are the singular values, or the absolute eigenvalues; t is the
threshold, and k is how many of them exceed it. The divergence of the estimate with respect to the
data is then ``a_k - b_k t``.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from matrixdp.covariance import Covariance, SymmetricDiagonal
from matrixdp.parameters import positive_number
from matrixdp.postprocess.noise_law import in_noise_units, noise_law
from matrixdp.postprocess.spectrum import Spectrum
from matrixdp.postprocess.step import FloatArray, Shape, Step

__all__ = ["EntryThreshold", "SingularValueThreshold", "best_threshold", "estimated_risk"]

_WITHOUT_ONE = "SingularValueThreshold without a threshold"


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
    symmetric noise; for a `SymmetricDiagonal` one that of the matrix in its units.

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
        """Raise if the threshold is to be found for noise that has several scales in all units."""
        del shape
        if self.threshold is None and not isinstance(covariance, SymmetricDiagonal):
            noise_law(covariance, _WITHOUT_ONE)

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix with its singular values thresholded."""
        if self.threshold is not None:
            return _thresholded(Spectrum.of(value), self.threshold)
        scaled, noise, units = in_noise_units(value, covariance)
        law, spectrum = noise_law(noise, _WITHOUT_ONE), Spectrum.of(scaled)
        shape = (value.shape[0], value.shape[1])
        best = best_threshold(spectrum.values / law.scale, shape, symmetric=law.symmetric)
        return _thresholded(spectrum, law.scale * best) * units

    def __str__(self) -> str:
        """Say which threshold."""
        if self.threshold is None:
            return "singular values soft-thresholded where Stein's estimate of the error is least"
        return f"singular values soft-thresholded at {self.threshold!r}"


def _thresholded(spectrum: Spectrum, threshold: float) -> FloatArray:
    return spectrum.with_sizes(np.maximum(spectrum.sizes - threshold, 0.0))


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


class _Divergence(NamedTuple):
    """The divergence for each k from 1 on, which is ``constant - slope * threshold``.

    Where d_k and the next value are equal no threshold keeps exactly k of them, and the numbers may
    be infinite or NaN.
    """

    constant: FloatArray
    slope: FloatArray


def best_threshold(values: FloatArray, shape: Shape, *, symmetric: bool) -> float:
    """Return the threshold with the least estimated risk.

    Parameters
    ----------
    values : ndarray
        The singular values, or the eigenvalues of a symmetric matrix, falling in absolute value,
        in units of the noise's scale.
    shape : tuple of int
        Of the matrix.
    symmetric : bool
        Whether the noise is symmetric, and the values are eigenvalues.
    """
    high = np.abs(values)
    low = np.append(high[1:], 0.0)
    kept = np.arange(1.0, len(high) + 1.0)
    divergence = _divergence(values, shape, symmetric=symmetric)
    with np.errstate(invalid="ignore"):  # where no threshold keeps k
        thresholds = np.clip(divergence.slope / kept, low, high)
        dropped = np.append(np.cumsum(np.square(high[::-1]))[::-1][1:], 0.0)
        moved = divergence.constant - divergence.slope * thresholds
        risks = dropped + kept * np.square(thresholds) + 2.0 * moved
    risks = np.where(low < high, risks, np.inf)
    best = int(np.argmin(risks))
    # Everything may be set to 0: then nothing moves with the data.
    nothing_kept = float(np.sum(np.square(high)))
    return float(thresholds[best]) if risks[best] < nothing_kept else float(high[0])


def estimated_risk(values: FloatArray, threshold: float, shape: Shape, *, symmetric: bool) -> float:
    """Return Stein's estimate of the expected squared error, in squared noise scales.

    ``-p + sum_i min(t, d_i)^2 + 2 divergence``, with p the dimension of the noise. Its expected
    value is that of the squared error, whatever the true matrix is.

    References
    ----------
    Candès, Sing-Long and Trzasko, *Unbiased risk estimates for singular value thresholding and
    spectral estimators*, IEEE Trans. Signal Process. 61 (2013).
    """
    rows, columns = shape
    sizes = np.abs(values)
    dimension = rows * (rows + 1) // 2 if symmetric else rows * columns
    risk = float(np.sum(np.square(np.minimum(sizes, threshold)))) - dimension
    kept = int(np.count_nonzero(sizes > threshold))
    if kept == 0:
        return risk
    constant, slope = _divergence(values, shape, symmetric=symmetric)
    return risk + 2.0 * float(constant[kept - 1] - slope[kept - 1] * threshold)


def _divergence(values: FloatArray, shape: Shape, *, symmetric: bool) -> _Divergence:
    # Equal values divide by 0 where no threshold separates them.
    with np.errstate(divide="ignore", invalid="ignore"):
        if symmetric:
            return _of_eigenvalues(values)
        return _of_singular_values(values, abs(shape[0] - shape[1]))


def _of_singular_values(values: FloatArray, longer: int) -> _Divergence:
    """Return the divergence of soft-thresholded singular values.

    It is ``sum_i [1 + |m - n| (1 - t/d_i)]`` over kept i, plus twice the sum over pairs of
    ``d_i (d_i - t)_+ / (d_i^2 - d_j^2)``. The two terms of a pair that is kept add up to
    ``1 - t / (d_i + d_j)``, which has no difference to cancel.
    """
    kept = np.arange(1.0, len(values) + 1.0)
    sums, differences = values[:, None] + values, values[:, None] - values
    one_kept = values[:, None] / (differences * sums)
    constant = kept * (kept + longer) + 2.0 * _across(values[:, None] * one_kept)
    alone = longer * np.cumsum(1.0 / values)
    slope = alone + 2.0 * _within(1.0 / sums) + 2.0 * _across(one_kept)
    return _Divergence(constant, slope)


def _of_eigenvalues(values: FloatArray) -> _Divergence:
    """Return the divergence of soft-thresholded eigenvalues.

    The divergence of a function f of eigenvalues, in the isometric embedding of symmetric matrices,
    is ``sum_i f'(l_i) + sum_{i<j} (f(l_i) - f(l_j)) / (l_i - l_j)``, which is the trace of its
    derivative by the formula of Daleckii and Krein (1965).
    """
    kept = np.arange(1.0, len(values) + 1.0)
    sizes, signs = np.abs(values), np.sign(values)
    one_kept = 1.0 / (sizes[:, None] - signs[:, None] * values)
    # A kept pair of one sign moves together: its quotient is 1 at every threshold.
    opposite = np.where(signs[:, None] * signs < 0.0, 2.0 / (sizes[:, None] + sizes), 0.0)
    constant = kept * (kept + 1.0) / 2.0 + _across(sizes[:, None] * one_kept)
    return _Divergence(constant, _within(opposite) + _across(one_kept))


def _within(terms: FloatArray) -> FloatArray:
    """Return, for each k, the sum of the terms of pairs ``i < j <= k``."""
    return np.asarray(np.cumsum(np.sum(np.triu(terms, 1), axis=0)))


def _across(terms: FloatArray) -> FloatArray:
    """Return, for each k, the sum of the terms of pairs ``i <= k < j``."""
    # Sums of positive terms from the right, then down: nothing is taken off again.
    beyond = np.cumsum(np.triu(terms, 1)[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return np.append(np.sum(np.triu(beyond), axis=0), 0.0)
