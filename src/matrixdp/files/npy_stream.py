"""Exact noise for ``.npy`` files larger than memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from matrixdp.errors import FileFormatError, StorageError
from matrixdp.files.npy_layout import NpyLayout, npy_header, read_layout
from matrixdp.files.unfinished import check_new_file, storage_errors, unfinished_file
from matrixdp.noise.application.add import ExactNoise, check_range
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.kernels import fastest_kernel
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey, checked_key
from matrixdp.noise.specification.scales import checked_scale

__all__ = ["add_noise_to_npy"]

_CHUNK_ELEMENTS = 1 << 20


def add_noise_to_npy(
    source: str | PathLike[str],
    target: str | PathLike[str],
    scale: Any,
    key: ReleaseKey,
    *,
    threads: int = 1,
    progress: bool = True,
) -> None:
    """Release the matrix of a ``.npy`` file into another one, in bounded memory.

    The file is read twice: once to see that every element is finite and within range, before
    anything is drawn, and once to add the noise. The target appears only when it is complete, and
    is never overwritten; a run that is killed leaves at most a hidden file whose name ends in
    ``.unfinished``, which is to be deleted: it holds noisy values, and all of them with a header
    if the run was killed in its last moment.

    Parameters
    ----------
    source : path
        A ``.npy`` file of float64 or float32, little-endian, in C or Fortran order. A file in
        Fortran order is treated as its transpose in C order, so that its elements are numbered as
        they lie in the file.
    target : path
        The file to make, of the same type, shape and order.
    scale : float or array_like
        Standard deviations, by the shape of the matrix, as in ``add_noise``.
    key : ReleaseKey
        Unbound; it is spent.
    threads : int
        How many threads; the result is the same.
    progress : bool
        Whether to show a progress bar on standard error, if that is a terminal.

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
    ...     add_noise_to_npy(source, target, 1.0, ReleaseKey.generate(), progress=False)
    ...     np.load(target).shape
    (3, 4)
    """
    unbound = checked_key(key)
    path, result = Path(source), Path(target)
    layout = read_layout(path)
    scales = checked_scale(scale, layout.shape, layout.dtype)
    shape = layout.shape
    if layout.fortran_order:
        scales, shape = scales.T, shape[::-1]
    context = NoiseContext.describe(shape=shape, dtype=layout.dtype, scale=scales)
    workers = checked_threads(threads)
    check_new_file(result)
    with _progress_bar(2 * layout.size, shown=progress) as advance:
        for start, values in _chunks(path, layout):
            check_range(values, start, shape=shape, scales=scales, threads=workers)
            advance(values.size)
        fastest_kernel()  # what fails to compile, or to open, does so before the key is spent
        with (
            storage_errors(result),
            unfinished_file(result, npy_header(layout)) as file,
            unbound.bind(context) as stream,
        ):
            noise = ExactNoise(stream, scales)
            for start, values in _chunks(path, layout):
                noise.add_range(values, start, out=values, threads=workers)
                file.write(values.data)
                advance(values.size)


def _chunks(path: Path, layout: NpyLayout) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the number of the first element and the elements, in one buffer that is used again."""
    buffer = np.empty(min(_CHUNK_ELEMENTS, layout.size), dtype=layout.dtype)
    try:
        with path.open("rb") as file:
            file.seek(layout.offset)
            for start in range(0, layout.size, _CHUNK_ELEMENTS):
                values = buffer[: layout.size - start]
                if file.readinto(values.data.cast("B")) != values.nbytes:
                    raise FileFormatError(f"{path} was cut short while it was being read")
                yield start, values
    except OSError as error:
        raise StorageError(
            f"source={str(path)!r} can no longer be read: "
            f"{error.strerror or type(error).__name__}; the target was not made and nothing was "
            "released. Bring the source back; a key that was spent meanwhile is not to be used "
            "again"
        ) from error


@contextmanager
def _progress_bar(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; the function that is yielded moves it on."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("Adding noise", total=total)
        yield lambda count: bar.update(task, advance=count)
