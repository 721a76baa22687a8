"""Matrices from files and standard input, and releases to standard output."""

import io
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import typer

from matrixdp.cli.cut_short import ReleasedButCutShortError
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.decimals import Decimals
from matrixdp.files.matrices import read_matrix
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = [
    "LARGE_FILE",
    "STREAM",
    "check_stdout",
    "read_source",
    "reporting_release",
    "saving_release",
    "write_stdout",
]

STREAM = "-"
"""The name of standard input and standard output."""

LARGE_FILE = 1 << 20
"""Bytes of a file below which it is read in less than a second, without a progress bar."""

# The last line of every report of a release.
_SPENDS_AGAIN = "a second run would draw new noise and spend as much again"


def read_source(
    source: str,
    suffix: str,
    *,
    header: bool = False,
    index: bool = False,
    decimals: Decimals = "nearest",
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    offered: Collection[str] = (),
) -> MatrixFile:
    """Read a matrix from a file or standard input; see `read_matrix` for the options.

    A progress bar is shown if that takes long.
    """
    read = partial(
        read_matrix,
        suffix=suffix,
        header=header,
        index=index,
        decimals=decimals,
        delimiter=delimiter,
        columns=columns,
        offered=offered,
    )
    if source == STREAM:
        if sys.stdin is None:
            raise InvalidParameterError("stdin is closed: pass a file, or pipe a matrix in")
        # A copy in memory: numpy seeks, which a pipe cannot.
        return read(io.BytesIO(sys.stdin.buffer.read()), name="stdin")
    try:
        with Path(source).open("rb") as file:
            if os.fstat(file.fileno()).st_size < LARGE_FILE:
                return read(file, name=source)
            # Late, because progress bars are slow to import.
            from matrixdp.cli.progress import progress_bar  # noqa: PLC0415

            with progress_bar(1.0, f"Reading {source}", after=1.0) as advance:
                return read(file, name=source, advance=advance)
    except FileNotFoundError:
        raise FileFormatError(f"{source} does not exist: name a file to read") from None
    except IsADirectoryError:
        raise FileFormatError(f"{source} is a folder: name a file in it") from None


def check_stdout() -> None:
    """Raise if standard output is closed, before anything is drawn."""
    if sys.stdout is None:
        raise InvalidParameterError("stdout is closed: name a file as OUT")


def write_stdout(data: bytes) -> None:
    """Write a release to standard output.

    Raises
    ------
    OSError
        If not a single byte was written: nothing was released.
    ReleasedButCutShortError
        If writing stopped later. What was written may have been read, so it counts as released.
    """
    # Below the buffer, where each write says how much of it left the process.
    stream = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)
    rest = memoryview(data)
    try:
        while rest:
            written = stream.write(rest)
            if written is None:
                raise BlockingIOError("stdout is not ready: connect it to a program that waits")
            rest = rest[written:]
    except OSError as error:
        if len(rest) == len(data):
            raise
        raise _cut_short(error.strerror or "stdout was not ready") from error
    except KeyboardInterrupt:
        # The interrupt may hide how much the last write had done: assume that it did something.
        raise _cut_short("interrupted") from None


@contextmanager
def saving_release(statement: Path) -> Iterator[None]:
    """Let an interrupt of the block, which saves and reports, say whether a release is out.

    Files appear all together, so that a statement which was not there before is of this release.

    Raises
    ------
    ReleasedButCutShortError
        If the interrupt came when the files were there.
    """
    before = _identity(statement)
    try:
        yield
    except KeyboardInterrupt:
        if _identity(statement) == before:
            raise
        raise ReleasedButCutShortError(
            f"interrupted, but the release is out, its budget is spent and {statement} is its "
            "statement"
        ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file beyond its name, or None if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def reporting_release(statement: Path) -> Iterator[None]:
    """Let no failure in the block, which reports a release, look as if nothing had happened.

    After it, a last line on standard error says that a second run would spend again.

    Raises
    ------
    ReleasedButCutShortError
        If the report could not be written, or was interrupted.
    """
    try:
        yield
        typer.echo(_SPENDS_AGAIN, err=True)
        if sys.stdout is not None:
            sys.stdout.flush()  # or a failure would come later, outside this block
    except (OSError, KeyboardInterrupt) as error:
        raise ReleasedButCutShortError(
            f"the release is out, its budget is spent and {statement} is its statement, but the "
            "report of it could not be written"
        ) from error


def _cut_short(reason: str) -> ReleasedButCutShortError:
    return ReleasedButCutShortError(
        f"standard output was cut short ({reason}): the release is out, at least in part, so its "
        "budget is spent and its statement stays; releasing the matrix again costs another budget"
    )
