"""The context of a key: everything public that the noise of a release depends on."""

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.noise.specification.scales import (
    checked_dtype,
    checked_grid_bits,
    checked_scale,
    grid_exponents,
    scale_digest,
)
from matrixdp.noise.specification.table import GRID_BITS
from matrixdp.parameters import checked_integers

__all__ = ["MOST_ELEMENTS", "NOISE_VERSION", "NoiseContext", "not_a_context"]

NOISE_VERSION = "matrixdp-noise-1"
"""Names this way of making noise; if any output bit changes, the name must change."""

MOST_ELEMENTS = 1 << 64
"""Elements are numbered in 64 bits."""


@dataclass(frozen=True)
class NoiseContext:
    """The public description of one release, which enters the derivation of its noise.

    Make it with ``NoiseContext.describe``. Two releases whose contexts differ in anything have
    unrelated noise, even under the same key bytes.

    Attributes
    ----------
    shape : tuple[int, ...]
        Shape of the value; elements are numbered in C order.
    dtype : str
        ``"<f8"`` or ``"<f4"``.
    grid_bits : int
        A scale sigma has the grid step ``2**(floor(log2(sigma)) - grid_bits)``.
    grid_exponents : tuple[int, int]
        Exponents of the finest and of the coarsest grid step.
    scale_digest : str
        SHA-256 of the scales.
    version : str
        The way of making noise.

    Examples
    --------
    >>> context = NoiseContext.describe(shape=(3, 4), dtype="float64", scale=3.7)
    >>> context.grid_exponents
    (-19, -19)
    """

    shape: tuple[int, ...]
    dtype: str
    grid_bits: int
    grid_exponents: tuple[int, int]
    scale_digest: str
    version: str = NOISE_VERSION

    def __post_init__(self) -> None:
        """Raise if this version cannot make noise for the context."""
        # A context may come from a stored release, and other versions make other noise.
        if self.version != NOISE_VERSION:
            raise InvalidParameterError(
                f"this version of matrixdp makes {NOISE_VERSION!r}, got version={self.version!r}; "
                "use the version that made the release"
            )
        checked_dtype(self.dtype)
        checked_grid_bits(self.grid_bits)
        lengths = checked_integers(self.shape, "shape")
        if not lengths or not all(length >= 0 for length in lengths):
            raise InvalidParameterError(
                f"shape must have at least one axis, of whole lengths, got shape={self.shape!r}"
            )
        # More would have to share words with others, and so their noise.
        if not prod(lengths) <= MOST_ELEMENTS:
            raise InvalidParameterError(
                f"a release has at most 2**64 elements, got shape={self.shape!r}; release it in "
                "parts, each with a key of its own"
            )

    @classmethod
    def describe(
        cls, *, shape: tuple[int, ...], dtype: Any, scale: Any, grid_bits: int = GRID_BITS
    ) -> Self:
        """Describe the release of a value with given scales.

        Parameters
        ----------
        shape : tuple[int, ...]
            Shape of the value, at least one axis.
        dtype : dtype_like
            float64 or float32.
        scale : float or array_like
            Standard deviations: one number, or an array with as many axes as the value, each of
            length 1 or the value's length.
        grid_bits : int
            From 0 to 20; fewer make a coarser grid.

        Raises
        ------
        InvalidParameterError, ShapeError
            If an argument is not supported.
        """
        lengths = checked_integers(shape, "shape")
        kind = checked_dtype(dtype)
        scales = checked_scale(scale, lengths, kind)
        return cls.of_scales(lengths, kind, scales, checked_grid_bits(grid_bits))

    @classmethod
    def of_scales(
        cls,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        scales: NDArray[np.float64],
        grid_bits: int = GRID_BITS,
    ) -> Self:
        """Describe the release of a value with scales that have been checked."""
        return cls(
            shape=shape,
            dtype=dtype.str,
            grid_bits=grid_bits,
            grid_exponents=grid_exponents(scales, grid_bits),
            # A digest, because scales may be as many as the elements and a context is kept.
            scale_digest=scale_digest(scales),
        )

    @property
    def value_bytes(self) -> int:
        """The bytes of a value: 8 or 4."""
        return int(self.dtype[-1])

    @cached_property
    def encoded(self) -> bytes:
        """The canonical bytes that enter the key derivation; different for every context."""
        # Sorted keys and fixed separators: these bytes decide the noise, so they must never vary.
        described = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(described, sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> bytes:
        """Return the SHA-256 of ``encoded``."""
        return hashlib.sha256(self.encoded).digest()


def not_a_context(value: object) -> InvalidParameterError:
    """Return the error about a value that is not a context."""
    return InvalidParameterError(
        f"context must be a NoiseContext, got {type(value).__name__}; make one with "
        "NoiseContext.describe(...)"
    )
