"""Folders of chunks as Dask arrays, which are read when they are computed."""

from os import PathLike
from pathlib import Path
from typing import Any

import dask.array as da
from dask.delayed import delayed
from dask.utils import natural_sort_key
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.chunk_folders import layout_kind
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.files.formats.stacked_folder import RowsFolder
from matrixdp.queries.record_files import files_of, is_pattern

__all__ = ["read_folder"]


def read_folder(path: str | PathLike[str]) -> da.Array:
    """Return the matrix in a folder: an array of zarr, or ``.npy`` or Parquet files with its rows.

    A pattern for the names of such files, as ``"part-*.parquet"``, does as well as their folder.
    They follow each other by the numbers in their names, as Dask writes them (``part.2`` before
    ``part.10``), and have equal columns of float64 or float32.

    Raises
    ------
    FileFormatError, InvalidParameterError
        If it is no such folder.
    """
    folder = Path(path)
    if is_pattern(path):
        kind = layout_kind(folder)
        if issubclass(kind, RowsFolder):
            return _stacked(path, kind, files_of(path))
    if not folder.is_dir():
        raise FileFormatError(f"{path} is not a folder: name one of zarr, .npy or Parquet files")
    kind = layout_kind(folder)
    if issubclass(kind, RowsFolder):
        return _stacked(path, kind, kind.files(folder))
    with foreign_errors(path, "an array of zarr"):
        return da.from_zarr(str(path))


def _stacked(name: object, kind: type[RowsFolder], found: list[Path]) -> da.Array:
    files = sorted(found, key=lambda file: natural_sort_key(str(file)))
    facts = [kind.facts(file) for file in files]
    # By name, too: noise for columns with bounds of their own does not cover others.
    if len({(each.columns, each.dtype, each.names) for each in facts}) > 1:
        raise FileFormatError(
            f"{name} has files with different columns, or in another order: write them alike, in "
            "float64 or float32"
        )
    load = delayed(_loaded, pure=False)
    array = da.concatenate(
        [
            da.from_delayed(load(kind, file.absolute()), (each.rows, each.columns), each.dtype)
            for file, each in zip(files, facts, strict=True)
        ]
    )
    # A release needs equal chunks, and files may have any number of rows.
    return array.rechunk((max(each.rows for each in facts), -1))


def _loaded(kind: type[RowsFolder], file: Path) -> NDArray[Any]:
    """Return the rows of a file: a task."""
    return kind.load(file)
