"""Matrices that passed every check, and releases that only have to be paid for and drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.drawing import Drawing, drawing_for
from matrixdp.mechanisms.labelled import Relabel, without_labels
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.parameters import check_within, shaped_array
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["CheckedMatrix", "PreparedRelease", "Promise", "checked_matrix"]


class CheckedMatrix(NamedTuple):
    """A matrix that a mechanism may release. It is never shown.

    Attributes
    ----------
    array : ndarray
        float64 or float32.
    relabel : callable or None
        Gives a matrix of this shape the labels that it came with, if there were any.
    drawing : Drawing
        How noise is drawn for it.
    """

    array: np.ndarray[Any, Any]
    relabel: Relabel | None
    drawing: Drawing

    def __repr__(self) -> str:
        """Show the shape alone."""
        return f"CheckedMatrix(shape={self.array.shape}, dtype={self.array.dtype.name!r})"


def checked_matrix(matrix: Any, proof: NoiseProof) -> CheckedMatrix:
    """Return a matrix that may be released with the noise of a proof, or raise with the reason."""
    # A plain array has no labels, and nothing to convert.
    plain = type(matrix) is np.ndarray
    numbers, relabel = (matrix, None) if plain else without_labels(matrix)
    array = shaped_array(numbers, "matrix", axes=2, booleans=True, keep_single=True)
    drawing = drawing_for(proof, array.shape, array.dtype)
    check_within(array, "matrix", drawing.limit)
    # A SymmetricBall weighs mirrored entries as one: another matrix is outside its promise,
    # whatever the noise.
    if drawing.is_symmetric and not np.array_equal(array, array.T):
        raise InvalidParameterError(
            "matrix is not symmetric, but a SymmetricBall is about symmetric matrices: pass "
            "(A + A.T) / 2, or use a FrobeniusBall"
        )
    return CheckedMatrix(array, relabel, drawing)


class Promise(NamedTuple):
    """What a release will promise, and why. It says what the release costs.

    Attributes
    ----------
    proof : NoiseProof
        What the noise is proven to give.
    guarantee : Guarantee
        What is promised.
    mechanism : str
        Which mechanism makes the release.
    """

    proof: NoiseProof
    guarantee: Guarantee
    mechanism: str

    @property
    def sensitivity(self) -> SensitivitySet:
        """What one record can change."""
        return self.proof.sensitivity

    @property
    def covariance(self) -> Covariance:
        """The covariance of the noise."""
        return self.proof.covariance


class PreparedRelease(NamedTuple):
    """A release of which everything is known but the noise.

    Attributes
    ----------
    checked : CheckedMatrix
        The private matrix.
    promise : Promise
        What the release will promise.
    """

    checked: CheckedMatrix
    promise: Promise

    def drawn(
        self, key: ReleaseKey, *, threads: int | None, pay: Callable[[], None] | None = None
    ) -> Release:
        """Return the release; see `Drawing.draw`."""
        array, relabel, drawing = self.checked
        noisy = drawing.draw(array, key, threads=threads, pay=pay)
        return Release.from_proof(noisy if relabel is None else relabel(noisy), *self.promise)
