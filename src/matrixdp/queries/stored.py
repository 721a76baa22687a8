"""Arrays and tables that are stored or computed in parts: they are read part by part."""

from collections.abc import Iterator
from typing import Any

from matrixdp.errors import InvalidParameterError

__all__ = ["stored_parts"]

_ARROW_ROWS = 65_536
# Two megabytes of float64.
_NUMBERS_TOGETHER = 2**18


def stored_parts(data: Any) -> Iterator[Any] | None:
    """Return blocks of the records of a stored source, or None where the data are another kind.

    Parameters
    ----------
    data : Any
        Arrow tables, datasets and scanners; Dask arrays and frames; arrays of zarr and h5py.

    Raises
    ------
    InvalidParameterError
        If it is another object of Dask, zarr or h5py, such as a group of arrays.
    """
    match type(data).__module__.partition(".")[0]:
        case "pyarrow" if hasattr(data, "to_batches"):
            return _batches(data)
        case "dask" if getattr(data, "numblocks", None):
            # A block has all of its columns, also where these are in several chunks.
            return (data.blocks[index].compute() for index in range(data.numblocks[0]))
        case "dask" if hasattr(data, "npartitions") and hasattr(data, "columns"):
            return (data.partitions[index].compute() for index in range(data.npartitions))
        case "zarr" | "h5py" if getattr(data, "shape", None):
            return _slices(data)
        case "dask" | "zarr" | "h5py" as library:
            raise InvalidParameterError(
                f"data is a {type(data).__name__} of {library}: pass an array with records in rows"
            )
    return None


def _batches(data: Any) -> Iterator[Any]:
    if hasattr(data, "scanner"):  # a dataset
        return iter(data.to_batches(batch_size=_ARROW_ROWS))
    if hasattr(data, "projected_schema"):  # a scanner, which was made with a size of batches
        return iter(data.to_batches())
    return iter(data.to_batches(max_chunksize=_ARROW_ROWS))


def _slices(data: Any) -> Iterator[Any]:
    """Yield so many rows that each stored chunk is read once, and no more than fit a cache."""
    rows, *rest = data.shape
    width = rest[0] if rest else 1
    stored = data.chunks[0] if data.chunks else 1
    together = stored * max(1, _NUMBERS_TOGETHER // max(1, stored * width))
    for start in range(0, rows, together):
        yield data[start : start + together]
