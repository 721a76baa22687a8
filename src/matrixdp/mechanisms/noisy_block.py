"""A block of a release by itself: what workers of any engine do, with the bits of the whole."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.drawing import Drawing, checked_matrix, drawing_for
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.noise import ExactNoise, NoiseContext, NoiseStream, ReleaseKey
from matrixdp.noise.application.add import check_tile

__all__ = ["BlockNoise"]


@dataclass(frozen=True, eq=False)
class BlockNoise:
    """The noise of a release, for its blocks; it holds no key and may go anywhere.

    Parameters
    ----------
    proof : NoiseProof
        How the noise is shaped.
    shape : tuple of int
        Of the whole matrix.
    dtype : str
        float64 or float32.

    Raises
    ------
    InvalidParameterError, ShapeError
        If there is no such noise for such a matrix.

    Examples
    --------
    The bits of a block do not depend on how the matrix is cut up:

    >>> from matrixdp import IMGM, Budget, FrobeniusBall
    >>> mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5))
    >>> noise = BlockNoise(mechanism.proof, (4, 6), "float64")
    >>> matrix, secret = np.ones((4, 6)), bytes(32)
    >>> whole = mechanism.release(matrix, key=ReleaseKey.from_bytes(secret)).value
    >>> block = noise.noisy(matrix[1:3, 2:5], (1, 2), secret)
    >>> bool((block == whole[1:3, 2:5]).all())
    True
    """

    proof: NoiseProof
    shape: tuple[int, int]
    dtype: str

    def __post_init__(self) -> None:
        """Raise if there is no such noise."""
        _ = self._drawing.noise

    @property
    def context(self) -> NoiseContext:
        """What the key of the release is bound to."""
        return self._drawing.noise.context

    @property
    def in_parts(self) -> bool:
        """Whether a block may be less than the whole.

        Noise that is rotated is drawn at once, and only the whole shows whether it is symmetric.
        """
        drawing = self._drawing
        return drawing.by_element and not drawing.is_symmetric

    def check(self, block: object, origin: tuple[int, int]) -> NDArray[Any]:
        """Return a block that may be released, or raise with the reason.

        Raises
        ------
        InvalidParameterError, ShapeError
            If it is no array of the type, is not where the matrix is, or holds a number that is
            not finite or beyond its limit. The message quotes no number.
        """
        array = self._checked_kind(block, origin)
        if self.in_parts:
            check_tile(array, origin, shape=self.shape, scales=self._drawing.noise.scales)
        else:
            checked_matrix(array, self.proof)
        return array

    def noisy(self, block: object, origin: tuple[int, int], secret: bytes) -> NDArray[Any]:
        """Return a block with the noise that it has in the whole; it is checked before.

        Whoever calls it makes sure that a block never leaves with two values under one secret.
        """
        key = ReleaseKey.from_bytes(secret)
        if not self.in_parts:
            checked = checked_matrix(self._checked_kind(block, origin), self.proof)
            return checked.drawing.draw(checked.array, key, threads=1)
        with key.bind(self.context) as stream:
            return self.noisy_by(stream, block, origin)

    def noisy_by(self, stream: NoiseStream, block: object, origin: tuple[int, int]) -> NDArray[Any]:
        """Return the same by the stream of a key that is bound to `context`; only `in_parts`."""
        array = self._checked_kind(block, origin)
        return ExactNoise(stream, self._drawing.noise.scales).add_tile(array, origin)

    @cached_property
    def _drawing(self) -> Drawing:
        return drawing_for(self.proof, self.shape, np.dtype(self.dtype))

    def __reduce__(self) -> tuple[type["BlockNoise"], tuple[NoiseProof, tuple[int, int], str]]:
        """Leave behind what follows from the rest."""
        return BlockNoise, (self.proof, self.shape, self.dtype)

    def _checked_kind(self, block: object, origin: tuple[int, int]) -> NDArray[Any]:
        # A masked array has numbers below its mask, so no other kind will do.
        if type(block) is not np.ndarray or block.dtype != np.dtype(self.dtype):
            kind = getattr(block, "dtype", type(block).__name__)
            raise InvalidParameterError(
                f"matrix has a block of {kind}, not a numpy array of {self.dtype}: cast it"
            )
        if not self.in_parts and block.shape != self.shape:
            raise ShapeError(
                f"matrix has a block of shape {block.shape} at {origin}, but its noise can only be "
                f"drawn for the whole of shape {self.shape}: make it one chunk"
            )
        return block
