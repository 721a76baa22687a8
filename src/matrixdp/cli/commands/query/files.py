"""Files of records for ``matrixdp query``: one or many, read here or by workers of a cluster."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from matrixdp.cli.commands.query.layout import Layout
from matrixdp.cli.commands.query.source import RecordFile
from matrixdp.queries.record_files import files_of, is_pattern
from matrixdp.queries.stored_arrays import is_zarr_path, opened_zarr, rows_of

__all__ = ["RecordFiles"]

Reader: TypeAlias = Callable[[RecordFile], Iterator[Any]]


@dataclass(frozen=True)
class RecordFiles:
    """Files of records with the same columns, of which some are read.

    Parameters
    ----------
    path : Path
        Of a file that `RecordFile` reads, of a folder with Parquet files, or a pattern.
    columns, layout
        As of `RecordFile`.
    scheduler : str, optional
        The address of a Dask cluster whose workers read the files.
    """

    path: Path
    columns: tuple[str, ...]
    layout: Layout
    scheduler: str | None = None

    def __post_init__(self) -> None:
        """Raise if the format is not known or no column is named."""
        folder = self.path.is_dir() and not is_zarr_path(self.path)
        self._file(self.path / "x.parquet" if folder else self.path)

    def _file(self, path: Path) -> RecordFile:
        return RecordFile(path, self.columns, self.layout)

    def numbers(self) -> Any:
        """Return what yields blocks of numbers, or records that workers read."""
        return self._read(RecordFile.numbers)

    def values(self, numeric: Sequence[bool]) -> Any:
        """Return what yields blocks of rows, or records that workers read; see `RecordFile`."""
        return self._read(partial(_values, numeric=tuple(numeric)))

    def _read(self, reader: Reader) -> Any:
        if self.scheduler is not None:
            return self._on_workers(reader, self.scheduler)
        if not (is_pattern(self.path) or self.path.is_dir()) or is_zarr_path(self.path):
            return reader(self._file(self.path))
        return self._in_turn(reader)

    def _in_turn(self, reader: Reader) -> Iterator[Any]:
        # Late, because progress bars are slow to import.
        from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

        files = files_of(self.path)
        with progress_bar(1.0, f"Reading {self.path}", after=1.0) as advance:
            for file in files:
                yield from reader(replace(self._file(file), quiet=True))
                advance(1.0 / len(files))

    def _on_workers(self, reader: Reader, scheduler: str) -> Any:
        pieces = [piece for file in files_of(self.path) for piece in self._pieces(file.absolute())]
        # Late: an extra, and slow to import.
        from matrixdp.distributed.queries import RecordsOnWorkers  # noqa: PLC0415

        progress = partial(_cluster, scheduler, f"Reading {self.path} on workers")
        return RecordsOnWorkers(pieces, (reader,), progress)

    def _pieces(self, file: Path) -> list[RecordFile]:
        whole = replace(self._file(file), quiet=True)
        if not is_zarr_path(file):
            return [whole]
        return [replace(whole, rows=(part.start, part.stop)) for part in rows_of(opened_zarr(file))]


def _values(file: RecordFile, numeric: tuple[bool, ...]) -> Iterator[Any]:
    return file.values(numeric)


@contextmanager
def _cluster(scheduler: str, description: str) -> Iterator[Callable[[float], None]]:
    """Connect with a running cluster, and yield what moves a progress bar on."""
    from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415
    from matrixdp.distributed.clusters import connected  # noqa: PLC0415

    with connected(scheduler), progress_bar(1.0, description, after=1.0) as advance:
        yield advance
