"""Exact noise for ``.npy`` files larger than memory."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, StorageError
from matrixdp.files.formats.numpy_format import NpyLayout, npy_header, read_layout
from matrixdp.files.publishing.atomic import (
    check_new_file,
    hidden_beside,
    let_others_read,
    publish,
    storage_errors,
    unfinished_file,
)
from matrixdp.noise.application.add import ExactNoise, check_range
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.kernels import prepare_fastest
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey, checked_key
from matrixdp.noise.specification.scales import checked_scale

__all__ = ["Advance", "NoisyNpy", "add_noise_to_npy"]

Advance = Callable[[int], None]
"""Called with the number of elements just processed; each is checked, and later written."""

# Eight megabytes of float64: large enough for full speed, small enough for any machine.
_CHUNK_ELEMENTS = 1 << 20


def add_noise_to_npy(
    source: str | PathLike[str],
    target: str | PathLike[str],
    scale: Any,
    key: ReleaseKey,
    *,
    threads: int = 1,
    advance: Advance | None = None,
) -> None:
    """Release the matrix of a ``.npy`` file into another one, in bounded memory.

    The file is read twice: once to check that every element is finite and within range, before
    anything is drawn, and once to add the noise. The target appears only when it is complete, and
    is never overwritten. A run that is killed leaves at most a hidden file whose name ends in
    ``.unfinished``; delete it. It holds noisy values, and it has a header only if the run was
    killed in its last moment.

    Parameters
    ----------
    source : path
        A ``.npy`` file of float64 or float32, little-endian, in C or Fortran order. A file in
        Fortran order is treated as its transpose in C order, so that its elements are numbered in
        the order of the file.
    target : path
        The file to make, of the same type, shape and order.
    scale : float or array_like
        Standard deviations, by the shape of the matrix, as in ``add_noise``.
    key : ReleaseKey
        Unbound; it is spent.
    threads : int, optional
        How many threads; the result is the same.
    advance : callable, optional
        Called with the number of elements checked or written since the last call; the numbers add
        up to twice the size of the matrix.

    Raises
    ------
    FileFormatError
        If the source is not such a file, or is cut short.
    InvalidParameterError, ShapeError, KeyStateError
        Before anything is drawn, and before the key is spent.
    StorageError
        If the target cannot be opened, before the key is spent; or if the disk fills up or fails
        later, or the source can no longer be read. The target is not made.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     source, target = Path(folder, "value.npy"), Path(folder, "noisy.npy")
    ...     np.save(source, np.zeros((3, 4)))
    ...     add_noise_to_npy(source, target, 1.0, ReleaseKey.generate())
    ...     np.load(target).shape
    (3, 4)
    """
    result, unbound = Path(target), checked_key(key)
    check_new_file(result)
    noisy = NoisyNpy.prepared(Path(source), scale, threads=threads, advance=advance)
    # A whole pass before the key is spent: half a release of a bad matrix would help nobody.
    noisy.check(lambda _: None)
    with hidden_beside(result) as hidden:
        noisy.write(hidden, result, unbound, lambda _: None)
        with storage_errors(result):
            let_others_read(hidden)
            publish(hidden, result)


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyNpy:
    """A ``.npy`` file and the noise for it; what it is read for is passed to a function, too.

    Made by `prepared`.
    """

    source: Path
    layout: NpyLayout
    scales: NDArray[np.float64]
    context: NoiseContext
    threads: int
    advance: Advance

    @classmethod
    def prepared(
        cls, source: Path, scale: Any, *, threads: int, advance: Advance | None
    ) -> "NoisyNpy":
        """Return what is known before the elements are read; see `add_noise_to_npy`."""
        layout = read_layout(source)
        scales = checked_scale(scale, layout.shape, layout.dtype)
        shape = layout.shape
        # Elements are numbered in the order of the file, so that it can be read front to back.
        if layout.fortran_order:
            scales, shape = scales.T, shape[::-1]
        return cls(
            source=source,
            layout=layout,
            scales=scales,
            context=NoiseContext.describe(shape=shape, dtype=layout.dtype, scale=scales),
            threads=checked_threads(threads),
            advance=(lambda _: None) if advance is None else advance,
        )

    def check(self, read: Callable[[NDArray[Any]], object]) -> None:
        """Raise unless every element is finite and within range; pass all of them on."""
        for start, values in _chunks(self.source, self.layout):
            check_range(
                values, start, shape=self.context.shape, scales=self.scales, threads=self.threads
            )
            read(values)
            self.advance(values.size)
        # If it cannot be compiled or loaded, or is interrupted, that is known before the draw.
        prepare_fastest(self.layout.dtype.itemsize)

    def write(
        self,
        hidden: Path,
        target: Path,
        key: ReleaseKey,
        read: Callable[[NDArray[Any]], object],
    ) -> str:
        """Write the noisy file under a hidden name, complete, and return its SHA-256 digest.

        The elements are passed on once more, before their noise. The caller gives the file the
        target's name; errors mention the target.
        """
        header = npy_header(self.layout)
        # Computed on the way, in the order of the bytes, although the header is written last.
        digest = hashlib.sha256(header)
        # In this order, so that a target that cannot be opened does not spend the key.
        with (
            storage_errors(target),
            unfinished_file(hidden, header) as file,
            key.bind(self.context) as stream,
        ):
            noise = ExactNoise(stream, self.scales)
            for start, values in _chunks(self.source, self.layout):
                read(values)
                noise.add_range(values, start, out=values, threads=self.threads)
                file.write(values.data)
                digest.update(values.data)
                self.advance(values.size)
        return digest.hexdigest()


def _chunks(path: Path, layout: NpyLayout) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the number of the first element and the elements, in one buffer that is used again."""
    buffer = np.empty(min(_CHUNK_ELEMENTS, layout.size), dtype=layout.dtype)
    try:
        with path.open("rb") as file:
            file.seek(layout.offset)
            for start in range(0, layout.size, _CHUNK_ELEMENTS):
                values = buffer[: layout.size - start]
                # The header was checked against the length before, but the file may have changed.
                if file.readinto(values.data.cast("B")) != values.nbytes:
                    raise FileFormatError(f"{path} was cut short while it was being read")
                yield start, values
    except OSError as error:
        raise StorageError(
            f"source={str(path)!r} can no longer be read: "
            f"{error.strerror or type(error).__name__}; the target was not made and nothing was "
            "released. Bring the source back; a key that was spent meanwhile must not be used "
            "again"
        ) from error
