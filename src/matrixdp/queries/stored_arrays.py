"""Arrays of zarr and h5py, which are read a number of rows at a time."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from matrixdp.errors import InvalidParameterError, MissingExtraError
from matrixdp.files.formats.opening import foreign_errors

__all__ = ["StoredRows", "is_stored_array", "is_zarr_path", "opened_zarr", "rows_of"]

# Two megabytes of float64 in a block, and sixty-four in what one task of a cluster reads.
_NUMBERS_TOGETHER = 2**18
_NUMBERS_OF_A_TASK = 2**23


@dataclass(frozen=True, eq=False, repr=False)
class StoredRows:
    """Some rows of a stored array, read block by block.

    Attributes
    ----------
    array : zarr.Array or h5py.Dataset
        Records in rows.
    start, stop : int
        Which of them.
    """

    array: Any
    start: int
    stop: int

    def __iter__(self) -> Iterator[Any]:
        """Yield so many rows that each stored chunk is read once, and no more than fit a cache."""
        together = _rows_together(self.array, _NUMBERS_TOGETHER)
        for start in range(self.start, self.stop, together):
            with foreign_errors("data", "an array of numbers"):
                block = self.array[start : min(start + together, self.stop)]
            yield block


def is_stored_array(data: Any) -> bool:
    """Return whether this is an array of zarr or h5py, or raise if it is another object of them."""
    library = type(data).__module__.partition(".")[0]
    if library not in ("zarr", "h5py"):
        return False
    if not getattr(data, "shape", None):
        raise InvalidParameterError(
            f"data is a {type(data).__name__} of {library}: pass an array with records in rows"
        )
    return True


def rows_of(array: Any) -> list[StoredRows]:
    """Return the rows of a stored array in pieces for the tasks of a cluster."""
    together = _rows_together(array, _NUMBERS_OF_A_TASK)
    rows = array.shape[0]
    return [
        StoredRows(array, start, min(start + together, rows)) for start in range(0, rows, together)
    ]


def is_zarr_path(path: Path) -> bool:
    """Return whether a path names an array of zarr, or claims to."""
    marks = ("zarr.json", ".zarray")
    return path.suffix.lower() == ".zarr" or any((path / mark).is_file() for mark in marks)


def opened_zarr(path: Path) -> Any:
    """Return the array in a folder of zarr, opened for reading.

    Raises
    ------
    MissingExtraError
        If zarr is not installed.
    FileFormatError
        If there is no array.
    """
    zarr = _zarr()
    with foreign_errors(path, "an array of zarr"):
        return zarr.open_array(path, mode="r")


def _zarr() -> ModuleType:
    try:
        return importlib.import_module("zarr")  # an extra, and slow to import
    except ImportError:
        raise MissingExtraError(
            "arrays of zarr need zarr, which is not installed: pip install '.[dask]' in a clone of "
            "matrixdp"
        ) from None


def _rows_together(array: Any, numbers: int) -> int:
    """Return a multiple of the rows of a stored chunk, which has about so many numbers."""
    width = array.shape[1] if len(array.shape) > 1 else 1
    # A shard is what is read at once, and holds chunks.
    chunks = getattr(array, "shards", None) or array.chunks
    stored = int(chunks[0]) if chunks else 1
    return stored * max(1, numbers // max(1, stored * width))
