"""Records that are stored or computed in parts: they are read part by part, never as a whole."""

from collections.abc import Iterator, Sequence
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.queries.databases import cursor_blocks, is_cursor
from matrixdp.queries.record_files import file_blocks, files_of, is_files
from matrixdp.queries.stored_arrays import StoredRows, is_stored_array

__all__ = ["stored_parts"]

_ROWS = 65_536


def stored_parts(data: Any, names: Sequence[str] | None) -> Iterator[Any] | None:
    """Return blocks of the records of a stored source, or None where the data are another kind.

    Parameters
    ----------
    data : Any
        Paths of files, patterns and folders; Arrow tables, datasets and scanners; lazy frames of
        polars; arrays of zarr and h5py; cursors of databases; Dask arrays and frames.
    names : sequence of str, optional
        The columns that are read of a source with names; by default all.

    Raises
    ------
    InvalidParameterError
        If it is another object of Dask, zarr or h5py, such as a group of arrays.
    """
    if is_files(data):
        return (block for file in files_of(data) for block in file_blocks(file, names))
    if is_stored_array(data):
        return iter(StoredRows(data, 0, data.shape[0]))
    parts = _batches(data, names)
    return cursor_blocks(data) if parts is None and is_cursor(data) else parts


def _batches(data: Any, names: Sequence[str] | None) -> Iterator[Any] | None:
    """Return the parts that a library makes of its tables, or None where it is no such library."""
    match type(data).__module__.partition(".")[0]:
        case "pyarrow" if hasattr(data, "to_batches"):
            return _arrow_batches(data)
        case "polars" if hasattr(data, "collect_schema") and hasattr(data, "sink_parquet"):
            return _lazy_batches(data, names)
        case "dask":
            return _computed(data)
    return None


def _computed(data: Any) -> Iterator[Any]:
    """Yield the blocks of an array or a frame of Dask one after the other."""
    # A delayed object has every attribute, but no such tuple.
    if isinstance(getattr(data, "numblocks", None), tuple) and data.numblocks:
        # A block has all of its columns, also where these are in several chunks.
        return (data.blocks[index].compute() for index in range(data.numblocks[0]))
    if isinstance(getattr(data, "npartitions", None), int) and hasattr(data, "columns"):
        return (data.partitions[index].compute() for index in range(data.npartitions))
    raise InvalidParameterError(
        f"data is a {type(data).__name__} of dask: pass an array with records in rows"
    )


def _arrow_batches(data: Any) -> Iterator[Any]:
    if hasattr(data, "scanner"):  # a dataset
        return iter(data.to_batches(batch_size=_ROWS))
    if hasattr(data, "projected_schema"):  # a scanner, which was made with a size of batches
        return iter(data.to_batches())
    return iter(data.to_batches(max_chunksize=_ROWS))


def _lazy_batches(frame: Any, names: Sequence[str] | None) -> Iterator[Any]:
    """Yield the frames that a lazy frame of polars is computed in."""
    if not hasattr(frame, "collect_batches"):
        raise InvalidParameterError(
            "data is a lazy frame, which needs polars 1.34 or later to be read in parts: update "
            "polars, or pass data.collect() if there is memory for it"
        )
    known = frame.collect_schema().names()
    # A name that is missing is reported where columns are matched.
    chosen = frame.select(names) if names is not None and set(names) <= set(known) else frame
    return iter(chosen.collect_batches(chunk_size=_ROWS, engine="streaming"))
