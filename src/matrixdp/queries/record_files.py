"""Files of records: one, a list of them, those of a folder, or all that match a pattern."""

import glob
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.arrow_format import arrow_module, open_table
from matrixdp.files.formats.numpy_format import map_npy
from matrixdp.files.formats.opening import check_regular
from matrixdp.files.formats.suffixes import ARROW, format_of
from matrixdp.queries.stored_arrays import StoredRows, is_zarr_path, opened_zarr

__all__ = ["arrow_batches", "file_blocks", "files_of", "is_files", "is_pattern"]

# Rows of an Arrow file or a mapped array that are handed on at once.
_ROWS = 65_536


def is_files(data: Any) -> bool:
    """Return whether data are a path or a pattern, or a list of `pathlib.Path`.

    A list of strings does not count: it may hold records of one column.
    """
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(each, PathLike) for each in data)
    return isinstance(data, str | PathLike)


def is_pattern(path: str | PathLike[str]) -> bool:
    """Return whether a path is a pattern for the names of files, and not that of a file."""
    return glob.has_magic(str(path)) and not Path(path).exists()


def files_of(data: Any) -> list[Path]:
    """Return the files that data name, in order.

    Parameters
    ----------
    data : path, or sequence of paths
        Of a file, of a folder with Parquet files at any depth, of an array of zarr, or a pattern
        such as ``"part-*.parquet"``.

    Raises
    ------
    FileFormatError
        If there is no such file.
    InvalidParameterError
        If a file is named twice: every record of it would count twice, and change the answer by
        twice its sensitivity.
    """
    named = [data] if isinstance(data, str | PathLike) else list(data)
    files = [file for path in named for file in _files_at(Path(path))]
    found: set[Path] = set()
    for file in files:
        real = file.resolve()
        if real in found:
            raise InvalidParameterError(
                f"{file} is among the files twice, so that its records would count twice: name it "
                "once"
            )
        found.add(real)
    return files


def _files_at(path: Path) -> list[Path]:
    if is_pattern(path):
        matches = sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207 - also absolute
        files = [match for match in matches if match.is_file() or is_zarr_path(match)]
        if not files:
            raise FileFormatError(f"no file matches {str(path)!r}: name files that there are")
        return files
    if is_zarr_path(path) or not path.is_dir():
        return [path]
    # As others write them: names with _ or . in front hold what is known of the others.
    found = sorted(path.rglob("*.parquet"))
    files = [each for each in found if not each.name.startswith(("_", ".")) and each.is_file()]
    if not files:
        raise FileFormatError(f"{path} is a folder without .parquet files: name a pattern")
    return files


def file_blocks(path: Path, names: Sequence[str] | None) -> Iterator[Any]:
    """Yield the records of one file in blocks.

    Parameters
    ----------
    path : path
        A ``.npy``, ``.parquet`` or ``.arrow`` file, or an array of zarr.
    names : sequence of str, optional
        The columns that are read of a file with names; by default all.
    """
    if is_zarr_path(path):
        array = opened_zarr(path)
        return iter(StoredRows(array, 0, array.shape[0]))
    match format_of(path):
        case ".npy":
            return _mapped(path)
        case kind if kind in ARROW:
            return arrow_batches(path, names)
    # Not the name itself, which may be text that was meant as a record.
    raise InvalidParameterError(
        f"data is a path whose name ends in {format_of(path)!r}: pass .npy, .parquet or .arrow "
        "files, or an array of zarr"
    )


def _mapped(path: Path) -> Iterator[Any]:
    array = map_npy(path)
    if array.ndim == 0:
        yield array
        return
    # Cut, because what a query does with a block may take as much memory again.
    for start in range(0, len(array), _ROWS):
        yield array[start : start + _ROWS]


def arrow_batches(
    path: str | PathLike[str], columns: Sequence[str] | None, suffix: str | None = None
) -> Iterator[Any]:
    """Yield some columns of a Parquet or Arrow file as batches, in the order that they are named.

    The format is that of the file's name, unless a suffix is given. By default all columns.
    """
    arrow = arrow_module()
    kind = format_of(Path(path)) if suffix is None else suffix
    check_regular(path)
    # Mapped, not read: an Arrow file may be larger than memory.
    opener = arrow.OSFile if kind == ".parquet" else arrow.memory_map
    with opener(str(path)) as source:
        table = open_table(source, kind, path, columns)
        found = table.schema.names
        for name in columns or ():
            if found.count(name) != 1:
                _check_not_in_folders(Path(path), name)
                many = "more than one" if name in found else "no"
                raise FileFormatError(
                    f"{path} has {many} column {name!r}: name one that it has once"
                )
        for batch in table.batches():
            # By their indices: pyarrow gives the columns in the order of the file.
            held = batch.schema.names
            yield batch if columns is None else batch.select([held.index(name) for name in columns])


def _check_not_in_folders(path: Path, name: str) -> None:
    """Raise if a column is in the names of folders, as ``year=2024/part-0.parquet`` has it.

    Its type would have to be guessed from all names together, and libraries guess differently.
    """
    if any(folder.startswith(f"{name}=") for folder in path.parent.parts):
        raise FileFormatError(
            f"{path} has column {name!r} in the name of a folder alone: pass "
            "pyarrow.dataset.dataset(folder, partitioning='hive') or "
            "dask.dataframe.read_parquet(folder), or write the column into the files"
        )
