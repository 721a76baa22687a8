"""Optimal shrinkage of singular values for noise of a known scale."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from matrixdp.covariance import Covariance, SymmetricDiagonal
from matrixdp.postprocess.noise_law import in_noise_units, noise_law
from matrixdp.postprocess.spectrum import Spectrum
from matrixdp.postprocess.step import FloatArray, Shape, Step, check_choice

__all__ = ["Loss", "SingularValueShrinkage", "shrunk"]

Loss = Literal["frobenius", "operator", "nuclear"]


@dataclass(frozen=True)
class SingularValueShrinkage(Step):
    """Shrink every singular value to what is best for large matrices of low rank plus noise.

    A singular value that the noise alone could have becomes 0; a larger one loses what noise has
    added to it, and more as its singular vectors are less certain. No number has to be chosen. For
    a `SymmetricIsotropic` release the eigenvalues are shrunk, positive and negative ones alike; for
    a `SymmetricDiagonal` one those of the matrix in its units, in which the error is counted, too.

    Parameters
    ----------
    loss : {"frobenius", "operator", "nuclear"}, optional
        Which norm of the error is made small.

    Notes
    -----
    In units of ``scale * sqrt(longer side)``, with beta the ratio of the sides, a true singular
    value ``x > beta^(1/4)`` is seen at ``y = sqrt((x + 1/x) (x + beta/x))``, above the edge
    ``1 + sqrt(beta)``. The shrinkers have the least asymptotic loss of all functions of y (Gavish
    and Donoho 2017). For the operator norm and matrices that are not square their paper names x
    itself, which is not the minimiser; the one here, ``x sqrt((x^2 + beta) / (x^2 + 1))``, is
    (Leeb 2020).

    Symmetric noise of off-diagonal scale tau moves an eigenvalue theta to ``theta + 1/theta`` in
    units of ``tau * sqrt(n)``, with a squared cosine of ``1 - 1/theta^2`` between the eigenvectors
    (Benaych-Georges and Nadakuditi 2011). Both are what beta = 1 gives, so the shrinkers are those
    of square matrices, applied to absolute values.

    The optimum is asymptotic: the rank is fixed while the sides grow. Where many singular values
    are alike and above the noise, as in a matrix of full rank without decay, the shrinkage takes
    off too much and the error may grow; `SingularValueThreshold` and `JamesStein` do not rest on
    low rank.

    References
    ----------
    Gavish and Donoho, *Optimal shrinkage of singular values*, IEEE Trans. Inf. Theory 63 (2017).
    Leeb, *Optimal singular value shrinkage for operator norm loss*, arXiv:2005.11807 (2020).
    Benaych-Georges and Nadakuditi, *The eigenvalues and eigenvectors of finite, low rank
    perturbations of large random matrices*, Adv. Math. 227 (2011).

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> from matrixdp.postprocess import SingularValueShrinkage, process
    >>> truth = np.outer(np.arange(50.0), np.ones(80))
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="add-remove")
    >>> release = mdp.IMGM(ball, mdp.Budget(epsilon=1.0, delta=1e-5)).release(truth)
    >>> shrunk = process(release, SingularValueShrinkage())
    >>> bool(np.linalg.norm(shrunk.value - truth) < np.linalg.norm(release.value - truth) / 2)
    True
    >>> shrunk.guarantee == release.guarantee
    True
    """

    loss: Loss = "frobenius"

    def __post_init__(self) -> None:
        """Raise unless the loss is one of the three."""
        check_choice(self.loss, "loss", get_args(Loss))

    @property
    def needs_noise(self) -> bool:
        """Yes: the noise decides how much is taken off."""
        return True

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise unless the noise has one scale, also if only in units of rows and columns."""
        del shape
        if not isinstance(covariance, SymmetricDiagonal):
            noise_law(covariance, "SingularValueShrinkage")

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the matrix with its singular values shrunk."""
        shape = (value.shape[0], value.shape[1])
        scaled, noise, units = in_noise_units(value, covariance)
        unit = noise_law(noise, "SingularValueShrinkage").unit(shape)
        spectrum = Spectrum.of(scaled)
        beta = min(shape) / max(shape)
        return spectrum.with_sizes(unit * shrunk(spectrum.sizes / unit, beta, self.loss)) * units

    def __str__(self) -> str:
        """Say what is shrunk and for which loss."""
        return f"singular values shrunk optimally for the {self.loss} norm of the error"


def shrunk(seen: FloatArray, beta: float, loss: Loss) -> FloatArray:
    """Return optimally shrunk singular values, in units of ``scale * sqrt(longer side)``.

    Parameters
    ----------
    seen : ndarray
        Singular values of the noisy matrix, not negative.
    beta : float
        The shorter side over the longer one, above 0 and at most 1.
    loss : {"frobenius", "operator", "nuclear"}
        Which norm of the error is made small.
    """
    sizes = np.zeros_like(seen)
    above = seen > 1.0 + np.sqrt(beta)
    sizes[above] = _SHRINKERS[loss](seen[above], beta)
    return sizes


def _bulge(seen: FloatArray, beta: float) -> FloatArray:
    """Return ``sqrt((y^2 - beta - 1)^2 - 4 beta)``, which is 0 at the edge."""
    # As a product of four factors: neither squares of squares nor a difference that cancels. The
    # first one is positive wherever y was found to be above the edge.
    edge, gap = 1.0 + np.sqrt(beta), 1.0 - np.sqrt(beta)
    outer = np.sqrt((seen - edge) * (seen + edge))
    return np.asarray(outer * np.sqrt((seen - gap) * (seen + gap)))


def _frobenius(seen: FloatArray, beta: float) -> FloatArray:
    """Return ``sqrt((y^2 - beta - 1)^2 - 4 beta) / y``."""
    return _bulge(seen, beta) / seen


def _true(seen: FloatArray, beta: float) -> FloatArray:
    """Return the true singular value x that is seen at y."""
    squared = (seen * seen - beta - 1.0 + _bulge(seen, beta)) / 2.0
    return np.asarray(np.sqrt(squared))


def _operator(seen: FloatArray, beta: float) -> FloatArray:
    """Return ``x sqrt((x^2 + beta) / (x^2 + 1))``: x times the smaller cosine over the larger."""
    true = _true(seen, beta)
    # As 1 - (1 - beta) / (x^2 + 1), which neither overflows nor cancels.
    return np.asarray(true * np.sqrt(1.0 - (1.0 - beta) / (true * true + 1.0)))


def _nuclear(seen: FloatArray, beta: float) -> FloatArray:
    """Return ``(x^4 - beta - sqrt(beta) x y) / (x^2 y)``, or 0 where that is negative."""
    true = _true(seen, beta)
    # Divided term by term: x^4 overflows sooner than its quotient.
    quotient = true * (true / seen) - beta / true / true / seen - np.sqrt(beta) / true
    return np.asarray(np.maximum(quotient, 0.0))


_SHRINKERS: dict[Loss, Callable[[FloatArray, float], FloatArray]] = {
    "frobenius": _frobenius,
    "operator": _operator,
    "nuclear": _nuclear,
}
