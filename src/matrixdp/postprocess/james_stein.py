"""Estimators that have less expected squared error than the release, whatever the truth is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import checked_matrix
from matrixdp.postprocess.noise_law import noise_law
from matrixdp.postprocess.spectrum import Spectrum, is_symmetric
from matrixdp.postprocess.step import FloatArray, Shape, Step

__all__ = ["EfronMorris", "JamesStein"]


@dataclass(frozen=True, eq=False)
class JamesStein(Step):
    """Move the whole matrix towards a target, as far as the noise calls for.

    Parameters
    ----------
    target : array_like, optional
        A public guess of the matrix, in its shape; by default all zeros.

    Notes
    -----
    The positive-part estimator ``T + (1 - (p - 2) sigma^2 / ||Y - T||_F^2)_+ (Y - T)``, with p the
    number of entries, or n (n + 1) / 2 for symmetric noise. From p = 3 on its expected squared
    Frobenius error is below that of the release for every true matrix; much below where the truth
    is within the noise of the target.

    References
    ----------
    James and Stein, *Estimation with quadratic loss*, Proc. 4th Berkeley Symp. (1961); Baranchik,
    *A family of minimax estimators of the mean of a multivariate normal distribution*, Ann. Math.
    Statist. 41 (1970), for the positive part.

    Examples
    --------
    >>> from matrixdp import Isotropic
    >>> JamesStein().apply(np.array([[2.0, 2.0], [2.0, 2.0]]), Isotropic(2.0)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    target: FloatArray | None

    def __init__(self, target: ArrayLike | None = None) -> None:
        checked = None if target is None else checked_matrix(target, "target")
        object.__setattr__(self, "target", checked)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.target,)

    @property
    def needs_noise(self) -> bool:
        """Yes: the noise decides how far the matrix moves."""
        return True

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise unless the noise has one scale in 3 dimensions or more, and the target fits."""
        law = noise_law(covariance, "JamesStein")
        if law.dimension(shape) < 3:
            raise ShapeError(
                f"JamesStein does not improve on a release of shape {shape}: its noise must have "
                "at least 3 independent entries; use the release as it is"
            )
        if self.target is None:
            return
        if self.target.shape != shape:
            raise ShapeError(
                f"target has shape {self.target.shape}, and the release {shape}: pass a matrix of "
                "the same shape"
            )
        if law.symmetric and not is_symmetric(self.target):
            raise InvalidParameterError(
                "target is not symmetric, but the release is: pass (target + target.T) / 2 if that "
                "is what you mean"
            )

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix, moved towards the target."""
        law = noise_law(covariance, "JamesStein")
        dimension = law.dimension((value.shape[0], value.shape[1]))
        target = np.zeros_like(value) if self.target is None else self.target
        away = value - target
        # In noise units, whose squares stay within the range of floats.
        distance = float(np.sum(np.square(away / law.scale)))
        kept = 1.0 - (dimension - 2.0) / distance if distance > dimension - 2.0 else 0.0
        return np.asarray(target + kept * away)

    def __str__(self) -> str:
        """Say where to."""
        towards = "zero" if self.target is None else "a public target"
        return f"moved towards {towards} by the positive-part James–Stein rule"


@dataclass(frozen=True)
class EfronMorris(Step):
    """Shrink singular values so that the expected squared error falls, whatever the truth is.

    The James–Stein estimator for matrices: it learns the covariance of the columns, or of the rows
    if those are more. Unlike `SingularValueShrinkage` it rests on no asymptotics; it gains less
    where the rank is low.

    Notes
    -----
    With k the shorter side and l the longer one, a singular value d becomes
    ``(d - (l - k - 1) sigma^2 / d)_+``. From l = k + 2 on the expected squared Frobenius error is
    below that of the release for every true matrix.

    References
    ----------
    Efron and Morris, *Empirical Bayes on vector observations: an extension of Stein's method*,
    Biometrika 59 (1972); Tsukuma and Kubokawa, *A unified approach to estimating a normal mean
    matrix in high and low dimensions*, J. Multivariate Anal. 139 (2015), for the positive part.

    Examples
    --------
    >>> from matrixdp import Isotropic
    >>> EfronMorris().apply(np.array([[3.0, 0.0, 0.0, 4.0]]), Isotropic(1.0)).round(2).tolist()
    [[2.76, 0.0, 0.0, 3.68]]
    """

    @property
    def needs_noise(self) -> bool:
        """Yes: the noise decides how much is taken off."""
        return True

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise unless the noise has one scale and one side is longer by 2 or more."""
        noise_law(covariance, "EfronMorris")
        if covariance.mirrored or abs(shape[0] - shape[1]) < 2:
            raise ShapeError(
                f"EfronMorris does not improve on a release of shape {shape}: one side must be "
                "longer than the other by at least 2; use JamesStein or SingularValueShrinkage"
            )

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix with its singular values shrunk."""
        scale = noise_law(covariance, "EfronMorris").scale
        excess = abs(value.shape[0] - value.shape[1]) - 1.0
        spectrum = Spectrum.of(value)
        sizes = spectrum.sizes / scale
        above = sizes > np.sqrt(excess)
        sizes[above] -= excess / sizes[above]
        return spectrum.with_sizes(scale * np.where(above, sizes, 0.0))

    def __str__(self) -> str:
        """Say what is shrunk."""
        return "singular values shrunk by the positive-part Efron–Morris rule"
