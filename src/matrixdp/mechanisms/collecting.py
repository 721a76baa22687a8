"""Sums over records, made here or on the workers of a cluster that has the records."""

from collections.abc import Callable
from typing import Any

from matrixdp.integer_sums import Part

__all__ = ["collected", "mapped"]


def collected(
    partial: Callable[[Any], Part], data: Any, columns: tuple[str, ...] | None = None
) -> Part:
    """Return the part of all records of a source, which is private.

    Parameters
    ----------
    partial : callable
        Returns the part of the records of a block, or of any source that one machine reads. It is
        sent to the workers of a cluster.
    data : Any
        The source.
    columns : tuple of str, optional
        The names of the columns that are read.
    """
    if not _is_distributed(data):
        return partial(data)
    # Late: distributed/ is above, and its extra may not be installed.
    from matrixdp.distributed.queries import collected_on_workers  # noqa: PLC0415

    return collected_on_workers(partial, data, columns)


def mapped(
    function: Callable[[Any], Any], data: Any, columns: tuple[str, ...] | None = None
) -> Any:
    """Return what a function makes of a source, one that is applied where the records are.

    Parameters
    ----------
    function : callable
        Takes a block of records or any source that one machine reads, and returns such a source.
    data, columns
        As for `collected`.
    """
    if not _is_distributed(data):
        return function(data)
    from matrixdp.distributed.queries import on_workers  # noqa: PLC0415

    return on_workers(data, columns).mapped(function)


def _is_distributed(data: Any) -> bool:
    """Return whether data are an object of Dask, or records that its workers read."""
    module = type(data).__module__
    return module.startswith("matrixdp.distributed.") or module.partition(".")[0] == "dask"
