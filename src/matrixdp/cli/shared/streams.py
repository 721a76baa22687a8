"""Matrices from files and standard input, and releases to standard output."""

import io
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import typer

from matrixdp.cli.shared.exit_codes import ReleasedButCutShortError
from matrixdp.cli.shared.interrupts import first_interrupt_raised
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.decimals import Decimals
from matrixdp.files.formats.matrices import read_matrix
from matrixdp.files.formats.opening import opened
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = [
    "LARGE_FILE",
    "SPENDS_AGAIN",
    "STREAM",
    "check_stdout",
    "read_source",
    "reporting_release",
    "write_stdout",
]

STREAM = "-"
"""The name of standard input and standard output."""

LARGE_FILE = 1 << 20
"""Bytes of a file below which it is read in less than a second, without a progress bar."""

SPENDS_AGAIN = "a second run would draw new noise and spend as much again"
"""The last line of every report of a release."""


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
    with opened(source) as file:
        if os.fstat(file.fileno()).st_size < LARGE_FILE:
            return read(file, name=source)
        # Late, because progress bars are slow to import.
        from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

        with progress_bar(1.0, f"Reading {source}", after=1.0) as advance:
            return read(file, name=source, advance=advance)


def check_stdout() -> None:
    """Raise if standard output is closed, before anything is drawn."""
    if sys.stdout is None:
        raise InvalidParameterError("stdout is closed: name a file as OUT")


def write_stdout(data: bytes, *, interruptible: bool) -> None:
    """Write a release to standard output.

    Parameters
    ----------
    data : bytes
        The release, whose statement is out.
    interruptible : bool
        Whether an interrupt stops it, although interrupts are ignored after a release: the reader
        may wait forever, and a terminal may show more than anyone wants to see.

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
        with first_interrupt_raised() if interruptible else nullcontext():
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
def reporting_release(statement: Path, again: str = SPENDS_AGAIN) -> Iterator[None]:
    """Let no failure in the block, which reports a release, look as if nothing had happened.

    After it, a last line on standard error says that a second run would spend again.

    Raises
    ------
    ReleasedButCutShortError
        If the report could not be written.
    """
    try:
        yield
        typer.echo(again, err=True)
        if sys.stdout is not None:
            sys.stdout.flush()  # or a failure would come later, outside this block
    except OSError as error:
        raise ReleasedButCutShortError(
            f"the release is out, its budget is spent and {statement} is its statement, but the "
            "report of it could not be written"
        ) from error


def _cut_short(reason: str) -> ReleasedButCutShortError:
    return ReleasedButCutShortError(
        f"standard output was cut short ({reason}): the release is out, at least in part, so its "
        "budget is spent and its statement stays; releasing the matrix again costs another budget"
    )
