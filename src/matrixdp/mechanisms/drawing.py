"""From a private matrix and a covariance to a release with exact noise.

Independent entries are drawn exactly, one by one. Directional noise exists only on the Frobenius
ball: as an exact i.i.d. floor that carries all of the privacy, plus extra noise in the eigenbasis.
The extra noise is post-processing, so that no rounding in it can hurt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Diagonal, Directional, Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.labelled import Relabel, without_labels
from matrixdp.mechanisms.other_arrays import is_in_chunks
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.add import PreparedNoise
from matrixdp.noise.specification.scales import value_limit
from matrixdp.parameters import Limit, check_within, shaped_array
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.scaled import ScaledSymmetricBall
from matrixdp.sensitivity.sets import FrobeniusBall, SensitivitySet, SymmetricBall

__all__ = [
    "CheckedMatrix",
    "Drawing",
    "PreparedRelease",
    "Promise",
    "checked_matrix",
    "drawing_for",
]

# With these, noise overflows with a probability below 2**-1000.
_LARGEST_SCALE = {"float64": 2.0**900, "float32": 2.0**100}
# Sets and covariances with a number for each entry would stay in memory, and so would those of
# directional noise, which are square matrices. Noise on large ones takes so long that preparing
# anew does not show.
_MOST_NUMBERS_KEPT = 1 << 14


@dataclass(frozen=True, eq=False)
class Drawing:
    """How noise is drawn for matrices of one shape and type; proven to fit that shape when made.

    Parameters
    ----------
    proof : NoiseProof
        How the noise is shaped, and the floor of directional noise.
    shape : tuple of int
        Of the matrices.
    dtype : np.dtype
        float64 or float32.

    Raises
    ------
    ShapeError
        If the set or the covariance does not describe such matrices.
    """

    proof: NoiseProof
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __post_init__(self) -> None:
        """Raise if the shape does not fit."""
        self.proof.sensitivity.check_shape(self.shape)
        self.proof.covariance.check_shape(self.shape)

    @cached_property
    def limit(self) -> Limit:
        """The limit of a matrix's entries: with larger ones, rounding would swallow the noise.

        It depends on the exact noise that carries the privacy, not on what is added to it.
        """
        return value_limit(self._exact_scales, self.dtype)

    @cached_property
    def noise(self) -> PreparedNoise:
        """The exact noise; raises if there is none of this covariance for such a matrix.

        Raises
        ------
        InvalidParameterError
            If directional noise has no floor, or a scale is beyond what the type can hold.
        """
        covariance, shape = self.proof.covariance, self.shape
        if not self.proof.can_be_drawn:
            raise InvalidParameterError(
                f"a {type(covariance).__name__} covariance can be judged on a "
                f"{type(self.proof.sensitivity).__name__} but not released: off the Frobenius ball "
                "its weakest direction may need less noise than an i.i.d. floor has, so privacy "
                "would rest on float rotations. Use Diagonal, or the set's best covariance"
            )
        scales = self._exact_scales
        match covariance:
            case _ if covariance.mirrored:
                # The upper triangle in a row: two draws for a mirrored pair would give a second
                # look at the same number.
                upper = scales[np.triu_indices(shape[0])]
                return PreparedNoise.of(upper.shape, self.dtype, upper)
            case Directional():
                self._check_largest(covariance)
                # The floor and what is added to it come from one key, as the two halves of a matrix
                # of twice the rows: a second key could be mixed up with the first.
                both = np.repeat([[scales.item()], [1.0]], shape[0], axis=0)
                return PreparedNoise.of((2 * shape[0], shape[1]), self.dtype, both)
            case _:
                return PreparedNoise.of(shape, self.dtype, scales)

    @cached_property
    def by_element(self) -> bool:
        """Whether the noise of every entry is drawn by itself."""
        return isinstance(self.proof.covariance, Isotropic | Diagonal)

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether mirrored entries of a matrix must be the same."""
        return isinstance(self.proof.sensitivity, SymmetricBall | ScaledSymmetricBall)

    @cached_property
    def _exact_scales(self) -> NDArray[np.float64]:
        """The scales of the exact noise: of every entry, or one for all."""
        match self.proof.covariance:
            case Diagonal(scales=scales):
                return scales
            case covariance if covariance.mirrored:
                return covariance.entry_scales(self.shape)
            case covariance:
                return np.array(self.proof.floor or covariance.smallest_singular_value)

    def _check_largest(self, covariance: Directional) -> None:
        largest = float(np.max(covariance.entry_scales(self.shape)))
        if not largest <= _LARGEST_SCALE[self.dtype.name]:
            raise InvalidParameterError(
                f"covariance has a standard deviation of {largest!r}, beyond what "
                f"{self.dtype.name} can hold: rescale the query"
            )

    def draw(
        self,
        matrix: NDArray[Any],
        key: ReleaseKey,
        *,
        threads: int | None,
        pay: Callable[[], None] | None = None,
    ) -> NDArray[Any]:
        """Return the matrix with noise.

        Parameters
        ----------
        matrix : ndarray
            Checked: of this shape and type, finite, within `limit`, and symmetric for symmetric
            noise.
        key : ReleaseKey
            Unbound; it is spent.
        threads : int or None
            The most threads, None for as many as there are processors; the result is the same.
        pay : callable, optional
            Pays for the release, as in `ReleaseKey.bind`.
        """
        if self.by_element:
            return self.noise.noisy_copy(matrix, key, threads=threads, pay=pay)
        covariance = self.proof.covariance
        noisy = partial(self.noise.noisy_copy, key=key, threads=threads, pay=pay)
        if isinstance(covariance, Directional):
            both = np.concatenate([matrix, np.zeros_like(matrix)])
            return self._directional(noisy(both), covariance)
        # Symmetric: the upper triangle is drawn once and mirrored.
        upper = np.triu_indices(len(matrix))
        result = np.empty_like(matrix)
        result[upper] = noisy(np.ascontiguousarray(matrix[upper]))
        result.T[upper] = result[upper]
        return result

    def _directional(self, drawn: NDArray[Any], covariance: Directional) -> NDArray[Any]:
        """Add ``V1 (sqrt(s_ij^2 - floor^2) G) V2^T`` to a matrix with exact noise.

        That matrix is the first half of what was drawn, and G the second. s_ij is the standard
        deviation in the eigendirections i and j, which V1 and V2 hold. The exact noise has the
        scale ``floor`` and carries the whole promise.
        """
        rows, floor = self.shape[0], self._exact_scales.item()
        scale = covariance.eigenbasis_scales
        # sqrt(s^2 - f^2), without the squares that underflow. A scale that rounding puts below the
        # floor gets no extra noise.
        inner = np.sqrt(np.maximum(scale - floor, 0.0)) * np.sqrt(scale + floor) * drawn[rows:]
        noise = covariance.rotated(inner)
        return np.asarray((drawn[:rows] + noise).astype(drawn.dtype))


def drawing_for(proof: NoiseProof, shape: tuple[int, int], dtype: np.dtype[Any]) -> Drawing:
    """Return the drawing for a shape and type; one that takes little memory is made once and kept.

    What is kept outlives its mechanism, and holds the set and the covariance.
    """
    # No kind of noise holds more numbers than that square; asking for the kind takes longer.
    few = max(shape) ** 2 <= _MOST_NUMBERS_KEPT
    if few or _numbers_held(proof, shape) <= _MOST_NUMBERS_KEPT:
        return _kept_drawing(proof, shape, dtype)
    return Drawing(proof, shape, dtype)


def _numbers_held(proof: NoiseProof, shape: tuple[int, int]) -> int:
    """Return about how many numbers a drawing refers to, at most."""
    match proof.sensitivity, proof.covariance:
        case FrobeniusBall(), Isotropic():
            return 2
        case _, Directional():
            return max(shape) ** 2
        case _:
            return prod(shape)


_kept_drawing = lru_cache(maxsize=32)(Drawing)


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
    if not plain and is_in_chunks(matrix):
        raise InvalidParameterError(
            "matrix is an array of Dask, which would be loaded whole: call release or "
            "release_to('out.zarr', matrix) of a mechanism, or pass matrix.compute()"
        )
    numbers, relabel = (matrix, None) if plain else without_labels(matrix)
    array = shaped_array(numbers, "matrix", axes=2, booleans=True, keep_single=True)
    drawing = drawing_for(proof, array.shape, array.dtype)
    check_within(array, "matrix", drawing.limit)
    # A SymmetricBall weighs mirrored entries as one: another matrix is outside its promise,
    # whatever the noise.
    if drawing.is_symmetric and not np.array_equal(array, array.T):
        raise InvalidParameterError(
            f"matrix is not symmetric, but a {type(proof.sensitivity).__name__} is about symmetric "
            "matrices: pass (A + A.T) / 2, or use a FrobeniusBall"
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
