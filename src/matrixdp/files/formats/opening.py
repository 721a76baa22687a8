"""Opening a file that a user names, and the one way in which a damaged one is reported."""

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from os import PathLike
from pathlib import Path

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError

__all__ = ["check_regular", "foreign_errors", "opened"]


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[BufferedReader]:
    """Open a regular file for reading; see `check_regular`."""
    check_regular(path)
    with Path(path).open("rb") as file:
        yield file


def check_regular(path: str | PathLike[str]) -> None:
    """Raise unless a path names a regular file.

    Before the file is opened: a pipe without a writer would block for ever, and a pipe cannot be
    read twice, nor from its end.

    Raises
    ------
    FileFormatError
        If there is no such file, or it is a folder, a pipe or a device.
    """
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileFormatError(f"{path} does not exist: name a file to read") from None
    if stat.S_ISDIR(mode):
        raise FileFormatError(f"{path} is a folder: name a file in it")
    if not stat.S_ISREG(mode):
        raise FileFormatError(
            f"{path} is not a regular file but a pipe or a device: save its content in a file, and "
            "name that"
        )


@contextmanager
def foreign_errors(name: object, kind: str) -> Iterator[None]:
    """Turn whatever a library raises about the content of a file into one error of our own.

    Its own words are dropped: they may quote the file, or advise to run what is in it. Only calls
    of the library belong in the block. Errors of the system stay what they are.
    """
    try:
        yield
    except MatrixDPError:
        raise
    except MemoryError:
        # Not an error of the file: whoever verifies it would be told that it is not proven.
        raise InvalidParameterError(
            f"{name} needs more memory than there is: use a smaller file"
        ) from None
    except Exception as error:
        # A failing disk is no damage of the file. Seeking before its first byte is.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise FileFormatError(
            f"{name} is not {kind}, or is cut short or damaged: save it again"
        ) from None
