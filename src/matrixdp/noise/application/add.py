"""Adding exact noise to arrays: whole or in parts, in place or into an output."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, KeyStateError, ShapeError
from matrixdp.noise.application.checks import check_tiles, checked_output, checked_value
from matrixdp.noise.application.filling import ONE_BLOCK, fill_block, fill_tile
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.application.tiles import Tile, range_tiles, rectangular_tile
from matrixdp.noise.kernels import (
    KernelFactory,
    PreparedKernels,
    fastest_kernel,
    prepare_fastest,
)
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey, checked_key
from matrixdp.noise.keys.stream import NoiseStream
from matrixdp.noise.specification.scales import (
    checked_scale,
    fitted_scale,
    scale_digest,
)
from matrixdp.parameters import checked_integer, checked_integers

__all__ = ["ExactNoise", "PreparedNoise", "add_noise", "check_range", "check_tile"]


def add_noise(
    value: NDArray[Any],
    scale: Any,
    key: ReleaseKey,
    *,
    out: NDArray[Any] | None = None,
    threads: int = 1,
) -> NDArray[Any]:
    """Return an array with exact Gaussian noise: ``round_to_grid(value + scale * z)``.

    Parameters
    ----------
    value : NDArray
        float64 or float32, finite, and at most about 2**52 times the scale (2**23 times for
        float32) in absolute value. Every element becomes a multiple of its grid step
        ``2**(floor(log2(scale)) - 20)``.
    scale : float or array_like
        Standard deviation: one number, or for a matrix (m, 1) per row, (1, n) per column, (m, n)
        per element.
    key : ReleaseKey
        Unbound; it is spent.
    out : NDArray, optional
        Where to put the result: the value itself to work in place, or another array. At any moment
        each of its elements has its old value or the released one, never noise alone. If the
        call is interrupted the output must be discarded.
    threads : int
        How many threads; the result is the same.

    Returns
    -------
    NDArray
        The noisy matrix, ``out`` if it was given.

    Raises
    ------
    InvalidParameterError, ShapeError, KeyStateError
        Before anything is drawn, and before the key is spent.

    Notes
    -----
    *Guarantee:* given uniform bits the result is exactly the real-valued Gaussian mechanism
    followed by rounding, for the value as it is in memory; see ``docs/exact_noise.md``.

    Examples
    --------
    >>> value = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> key = ReleaseKey.from_bytes(bytes(32))
    >>> add_noise(value, 0.5, key)
    array([[0.59167433, 2.45687962],
           [3.58790398, 3.56068087]])
    """
    # The key first: a spent key must be noticed before a large value is read.
    unbound = checked_key(key)
    array = checked_value(value)
    scales = checked_scale(scale, array.shape, array.dtype)
    target = checked_output(out, array, scales)
    workers = checked_threads(threads)
    tile = rectangular_tile(array, target, scales, array.shape, (0,) * array.ndim)
    # Every element is read before the key is bound, so that a refusal does not cost a key.
    check_tiles([tile], scales, array.dtype, workers)
    _release(tile, NoiseContext.of_scales(array.shape, array.dtype, scales), unbound, workers)
    return target


@dataclass(frozen=True, eq=False)
class PreparedNoise:
    """Noise for arrays of one shape and type: all that depends neither on a value nor on a key.

    Attributes
    ----------
    scales : NDArray[np.float64]
        With as many axes as the arrays.
    context : NoiseContext
        What a key is bound to.
    make_kernel : KernelFactory
        Makes kernels that are ready for values of this type.
    block_scales : NDArray[np.float64] or None
        The scales as one row, where an array is one block that the kernel takes as it is.
    """

    scales: NDArray[np.float64]
    context: NoiseContext
    make_kernel: KernelFactory
    block_scales: NDArray[np.float64] | None

    @classmethod
    def of(
        cls, shape: tuple[int, ...], dtype: np.dtype[Any], scales: NDArray[np.float64]
    ) -> "PreparedNoise":
        """Prepare noise of positive and finite scales: one number (no axes), or one for each entry.

        Raises
        ------
        InvalidParameterError, ShapeError
            If the scales are out of range or do not fit.
        """
        fitted = fitted_scale(scales, shape, dtype)
        # Compiling takes long and may fail: before anyone has paid for the release.
        make_kernel = prepare_fastest(dtype.itemsize)
        row = None
        if prod(shape) <= ONE_BLOCK and (dtype.itemsize == 8 or make_kernel().takes_single):
            row = (fitted if fitted.size == 1 else np.broadcast_to(fitted, shape)).reshape(-1)
        return cls(fitted, NoiseContext.of_scales(shape, dtype, fitted), make_kernel, row)

    def noisy_copy(
        self,
        value: NDArray[Any],
        key: ReleaseKey,
        *,
        threads: int | None,
        pay: Callable[[], None] | None = None,
    ) -> NDArray[Any]:
        """Return a new array with exact noise: `add_noise` for a value that has been checked.

        Parameters
        ----------
        value : NDArray
            Of the prepared shape and type, finite and within the `value_limit` of the scales. None
            of that is checked again.
        key : ReleaseKey
            Unbound; it is spent.
        threads : int or None
            The most threads, None for as many as there are processors; the result is the same.
        pay : callable, optional
            As in `ReleaseKey.bind`.

        Raises
        ------
        KeyStateError
            If the key is spent; before anything is paid or drawn.
        """
        # A new array overlaps nothing, so the output needs no check either.
        target = np.empty(value.shape, dtype=value.dtype)
        if self.block_scales is not None and value.flags.aligned:
            kernel = self.make_kernel()  # first, as in `_release`
            stream = key.bind(self.context, pay=pay)
            try:
                fill_block(value, target, self.block_scales, stream, kernel)
            finally:
                stream.close()
            return target
        tile = rectangular_tile(
            value, target, self.scales, value.shape, (0,) * value.ndim, in_place=False
        )
        _release(tile, self.context, key, threads, pay)
        return target


def check_range(
    values: NDArray[Any],
    start: int,
    *,
    shape: tuple[int, ...],
    scales: NDArray[np.float64],
    threads: int,
) -> None:
    """Raise if consecutive elements, from number ``start`` of the whole on, cannot be released.

    For callers that read a matrix in parts and must know before a key is spent. The shape is that
    of the whole, and the scales have been checked.
    """
    # The values stand in for the output, which checks do not touch.
    tiles = range_tiles(values, values, scales, shape, start)
    check_tiles(tiles, scales, values.dtype, threads)


def check_tile(
    block: NDArray[Any],
    origin: tuple[int, ...],
    *,
    shape: tuple[int, ...],
    scales: NDArray[np.float64],
) -> None:
    """Raise if a rectangular part of a matrix of some shape cannot be released; see `check_range`.

    Raises
    ------
    ShapeError
        If it is not a part of such a matrix.
    """
    _check_inside(block.shape, origin, shape)
    # The values stand in for the output, which checks do not touch.
    tile = rectangular_tile(block, block, scales, shape, origin, in_place=True)
    check_tiles([tile], scales, block.dtype, 1)


def _check_inside(part: tuple[int, ...], corner: tuple[int, ...], whole: tuple[int, ...]) -> None:
    # In Python integers, which do not overflow: a wrong corner must not wrap around.
    inside = len(corner) == len(part) == len(whole) and all(
        0 <= position <= position + length <= full
        for position, length, full in zip(corner, part, whole, strict=True)
    )
    if not inside:
        raise ShapeError(
            f"a tile of shape {part} at origin={corner} does not fit into the whole of shape "
            f"{whole}"
        )


def _release(
    tile: Tile,
    context: NoiseContext,
    key: ReleaseKey,
    threads: int | None,
    pay: Callable[[], None] | None = None,
) -> None:
    """Spend the key on filling the tile of the whole; everything has been checked."""
    # First, because a broken compiler must cost neither the key nor a payment.
    make_kernel = PreparedKernels(fastest_kernel, context.value_bytes)
    with key.bind(context, pay=pay) as stream:
        fill_tile(tile, stream, threads, make_kernel)


class ExactNoise:
    """The noise of one release, applied to the whole or to any part of it.

    Every element's noise depends on the stream and the element's index alone, so parts may be made
    in any order, by any process, and made again, with the same result.

    Parameters
    ----------
    stream : NoiseStream
        A bound key; it stays open.
    scale : float or array_like
        The scales of the *whole* matrix, as its context describes them. An array is not copied, and
        must not be changed afterwards.
    make_kernel : KernelFactory
        The implementation of the fast path; all give the same bits.

    Raises
    ------
    InvalidParameterError
        If the argument is not a stream.
    KeyStateError
        If the stream is bound to other scales.

    Examples
    --------
    >>> context = NoiseContext.describe(shape=(4, 6), dtype="float64", scale=1.0)
    >>> noise = ExactNoise(ReleaseKey.generate().bind(context), 1.0)
    >>> whole = noise.add(np.zeros((4, 6)))
    >>> tile = noise.add_tile(np.zeros((2, 3)), (1, 2))
    >>> bool((whole[1:3, 2:5] == tile).all())
    True
    """

    def __init__(
        self, stream: NoiseStream, scale: Any, *, make_kernel: KernelFactory = fastest_kernel
    ) -> None:
        if not isinstance(stream, NoiseStream):
            raise InvalidParameterError(
                f"stream must be a NoiseStream, got {type(stream).__name__}; ReleaseKey.bind "
                "returns one"
            )
        context = stream.context
        self._scales = checked_scale(scale, context.shape, context.dtype)
        # Other scales under the same stream would add the same normals, differently scaled: two
        # such results reveal the value.
        if scale_digest(self._scales) != context.scale_digest:
            raise KeyStateError(
                "this stream is bound to other scales; pass the scales of its context, or bind "
                "a new key"
            )
        self._stream = stream
        # What has to be compiled is compiled here, not by several threads at once.
        self._make_kernel = PreparedKernels(make_kernel, context.value_bytes)

    @property
    def context(self) -> NoiseContext:
        """The context of the release."""
        return self._stream.context

    def add(
        self, value: NDArray[Any], *, out: NDArray[Any] | None = None, threads: int = 1
    ) -> NDArray[Any]:
        """Return the whole matrix with its noise; see ``add_noise``."""
        # A smaller value would be a valid tile, but the caller means the whole.
        if np.shape(value) != self.context.shape:
            raise ShapeError(
                f"value has shape {np.shape(value)}, but the stream is bound to shape "
                f"{self.context.shape}"
            )
        return self.add_tile(value, (0,) * len(self.context.shape), out=out, threads=threads)

    def add_tile(
        self,
        tile: NDArray[Any],
        origin: tuple[int, ...],
        *,
        out: NDArray[Any] | None = None,
        threads: int = 1,
    ) -> NDArray[Any]:
        """Return a rectangular part of the matrix with its noise.

        Parameters
        ----------
        tile : NDArray
            The values of the part, with as many axes as the whole.
        origin : tuple[int, ...]
            The index of the part's first element in the whole.
        out : NDArray, optional
            The tile itself, or another array.
        threads : int
            How many threads; the result is the same.

        Raises
        ------
        InvalidParameterError, ShapeError, KeyStateError
            Before anything is drawn.
        """
        array = self._checked_part(tile)
        corner = checked_integers(origin, "origin")
        _check_inside(array.shape, corner, self.context.shape)
        target = checked_output(out, array, self._scales)
        part = rectangular_tile(array, target, self._scales, self.context.shape, corner)
        self._fill([part], array.dtype, checked_threads(threads))
        return target

    def add_range(
        self, values: NDArray[Any], start: int, *, out: NDArray[Any] | None = None, threads: int = 1
    ) -> NDArray[Any]:
        """Return the elements from number ``start`` on (in C order) with their noise.

        Parameters
        ----------
        values : NDArray
            One axis: the values of consecutive elements.
        start : int
            The number of the first one.
        out : NDArray, optional
            The values themselves, or another array.
        threads : int
            How many threads; the result is the same.
        """
        array = self._checked_part(values)
        size = prod(self.context.shape)
        first = checked_integer(start, "start")
        if array.ndim != 1 or not 0 <= first <= first + array.size <= size:
            raise ShapeError(
                f"values of shape {array.shape} from start={first} on do not fit into the {size} "
                "elements of the whole"
            )
        target = checked_output(out, array, self._scales)
        tiles = range_tiles(array, target, self._scales, self.context.shape, first)
        self._fill(tiles, array.dtype, checked_threads(threads))
        return target

    def _fill(self, tiles: list[Tile], dtype: np.dtype[Any], threads: int) -> None:
        """Check all tiles, then fill them: nothing is written if one of them is refused."""
        check_tiles(tiles, self._scales, dtype, threads)
        for tile in tiles:
            fill_tile(tile, self._stream, threads, self._make_kernel)

    def _checked_part(self, value: Any) -> NDArray[Any]:
        """Check the kind of an array that is a part of the release."""
        array = checked_value(value)
        # The type is part of the context: the same noise on float32 and float64 would be a second
        # look at the same value.
        if array.dtype.str != self.context.dtype:
            raise InvalidParameterError(
                f"value has dtype={array.dtype.str!r}, but the stream is bound to "
                f"{self.context.dtype!r}"
            )
        return array
