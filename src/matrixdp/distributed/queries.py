"""Sums over records on Dask: every task returns the part of its records, and a tree merges parts.

Parts are exact integers, so that retries, speculation, lost workers and the order of tasks change
nothing. Tasks return their errors as values: a scheduler and its workers log what tasks raise, and
the words of other libraries may quote a record.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from dask.base import compute
from dask.delayed import Delayed, delayed

from matrixdp.errors import InvalidParameterError, MatrixDPError
from matrixdp.integer_sums import Part, merged
from matrixdp.queries.record_files import files_of, is_files
from matrixdp.queries.stored_arrays import is_stored_array, is_zarr_path, opened_zarr, rows_of

__all__ = ["RecordsOnWorkers", "collected_on_workers", "on_workers"]

Function = Callable[[Any], Any]

# Parts that one task merges.
_TOGETHER = 16
# Tasks between two moves of a progress bar.
_REPORTED = 64


@dataclass(frozen=True, eq=False, repr=False)
class RecordsOnWorkers:
    """Records in pieces, each of which one task reads.

    Attributes
    ----------
    pieces : sequence
        Delayed blocks, or sources that one machine reads: paths, rows of an array of zarr.
    changes : tuple of callable
        What is done with a piece before it is read.
    progress : callable, optional
        Returns a context in which there is a `distributed.Client`; it yields what is called with
        the share of the tasks that are done since the last call.
    """

    pieces: Sequence[Any]
    changes: tuple[Function, ...] = ()
    progress: Callable[[], AbstractContextManager[Callable[[float], None]]] | None = None

    def mapped(self, function: Function) -> "RecordsOnWorkers":
        """Return the records that a function makes of every piece, where that is read."""
        return replace(self, changes=(*self.changes, function))

    def __repr__(self) -> str:
        """Show nothing of the records, nor how many there are."""
        return "RecordsOnWorkers(private)"


def on_workers(data: Any, columns: tuple[str, ...] | None = None) -> RecordsOnWorkers:
    """Return records that the workers of Dask read, for any query to take.

    Dask's arrays and frames need no such call: queries see what they are.

    Parameters
    ----------
    data : Dask array or frame, array of zarr, path, or list of paths
        A path is that of a ``.zarr`` array, of a file, of a folder with Parquet files, or a pattern
        such as ``"part-*.parquet"``. Every worker must be able to read it. A file is one task.
    columns : tuple of str, optional
        The names of columns, if no others of a Dask frame are read.

    Examples
    --------
    >>> import dask.array
    >>> from matrixdp.queries import PublicBounds, Sum
    >>> records = dask.array.ones((1000, 2), chunks=(300, 1))
    >>> Sum(PublicBounds(2, norm=2.0), "replace").evaluate(records).tolist()
    [[1000.0, 1000.0]]
    """
    if isinstance(data, RecordsOnWorkers):
        return data
    return RecordsOnWorkers(_pieces(data, columns))


def _pieces(data: Any, columns: tuple[str, ...] | None) -> Sequence[Any]:
    """Return what tasks read, one piece each."""
    # A delayed object has every attribute, but no such tuple.
    if isinstance(getattr(data, "numblocks", None), tuple) and data.numblocks:
        # A block has all of its columns, also where these are in several chunks.
        whole = data.rechunk({1: -1}) if data.numblocks[1:] > (1,) else data
        return list(whole.to_delayed().ravel())
    if isinstance(getattr(data, "npartitions", None), int) and hasattr(data, "columns"):
        return list(_only(data, columns).to_delayed())
    if is_files(data):
        return [piece for file in files_of(data) for piece in _pieces_of(file.absolute())]
    library = type(data).__module__.partition(".")[0]
    if library == "zarr" and is_stored_array(data):
        return rows_of(data)
    raise InvalidParameterError(
        f"data is a {type(data).__name__} of {library}: pass an array or a frame of Dask, an "
        "array of zarr, or paths of files"
    )


def collected_on_workers(
    partial: Callable[[Any], Part], data: Any, columns: tuple[str, ...] | None = None
) -> Part:
    """Return the part of all records, summed up by the workers: those of the current client.

    Raises
    ------
    MatrixDPError
        That of a task which returned one; other errors of tasks are named and not quoted.
    """
    records = on_workers(data, columns)
    # The function is sent once, and not with every task.
    work = delayed(_Work(partial, records.changes), pure=False, traverse=False)
    tasks = [delayed(_part_of, pure=False)(work, piece) for piece in records.pieces]
    if not tasks:
        return partial(iter(()))
    if records.progress is None:
        outcome = _computed(tasks)
    else:
        with records.progress() as advance:
            outcome = _computed(tasks, advance)
    if isinstance(outcome, _Failure):
        raise outcome.error()
    return outcome


@dataclass(frozen=True, eq=False, repr=False)
class _Work:
    """What a task does with its piece."""

    partial: Callable[[Any], Part]
    changes: tuple[Function, ...]

    def __call__(self, piece: Any) -> Part:
        return self.partial(reduce(lambda found, change: change(found), self.changes, piece))


@dataclass(frozen=True)
class _Failure:
    """Why a task has no part: an error without values of records."""

    kind: type[MatrixDPError]
    message: str

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        """Return the failure for an error; the words of other libraries may quote a record."""
        if isinstance(error, MatrixDPError):
            return cls(type(error), str(error))
        return cls(
            InvalidParameterError,
            f"data could not be read by a task of Dask: {type(error).__name__}; read one of the "
            "blocks on one machine to see why",
        )

    def error(self) -> MatrixDPError:
        """Return the error to raise."""
        return self.kind(self.message)


def _part_of(work: _Work, piece: Any) -> Part | _Failure:
    """Return the part of the records of a piece: a task, which raises nothing."""
    try:
        return work(piece)
    except Exception as error:  # noqa: BLE001 - what a task raises is logged, with its arguments
        return _Failure.of(error)


def _merged(outcomes: Iterable[Part | _Failure]) -> Part | _Failure:
    """Return the part of all records of several parts, or the first of the failures: a task."""
    parts = []
    for outcome in outcomes:
        if isinstance(outcome, _Failure):
            return outcome
        parts.append(outcome)
    return merged(parts)


def _computed(
    tasks: list[Delayed], advance: Callable[[float], None] | None = None
) -> Part | _Failure:
    """Return what tasks give together, merged in a tree."""
    try:
        if advance is None:
            return _only_one(compute(_tree(tasks)))
        # Late: not needed on one machine, and slow to import.
        from distributed import as_completed, default_client  # noqa: PLC0415

        trees = [_tree(group) for group in _groups(tasks, _REPORTED)]
        futures = default_client().compute(trees)
        for _ in as_completed(futures):
            advance(1.0 / len(futures))
        return _only_one(compute(_tree(list(map(delayed, futures)))))
    except Exception as error:  # noqa: BLE001 - of a task of others, or of the cluster
        return _Failure.of(error)


def _tree(tasks: Sequence[Delayed]) -> Delayed:
    """Return the task that has what all tasks give, merged a few at a time."""
    while len(tasks) > 1:
        tasks = [delayed(_merged, pure=False)(group) for group in _groups(tasks, _TOGETHER)]
    return tasks[0]


def _groups(tasks: Sequence[Delayed], together: int) -> Iterator[list[Delayed]]:
    for start in range(0, len(tasks), together):
        yield list(tasks[start : start + together])


def _only_one(results: tuple[Any, ...]) -> Part | _Failure:
    result: Part | _Failure = results[0]
    return result


def _only(frame: Any, columns: tuple[str, ...] | None) -> Any:
    """Return the columns of a frame that are read; all, for a task to say which one is missing."""
    names = list(frame.columns)
    if columns is None or any(names.count(name) != 1 for name in columns):
        return frame
    return frame[list(columns)]


def _pieces_of(file: Path) -> Sequence[Any]:
    """Return a file as one piece, or those of an array of zarr."""
    return rows_of(opened_zarr(file)) if is_zarr_path(file) else [file]
