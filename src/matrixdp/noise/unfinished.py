"""Files that come into being all at once, or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from matrixdp.errors import InvalidParameterError, StorageError

__all__ = ["check_new_file", "publish", "unfinished_file"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def check_new_file(target: Path) -> None:
    """Refuse a target that exists, or whose folder does not."""
    if target.exists() or target.is_symlink():
        raise InvalidParameterError(
            f"target={str(target)!r} exists and is never overwritten; choose another name"
        )
    if not target.parent.is_dir():
        raise InvalidParameterError(
            f"the folder of target={str(target)!r} does not exist; make it first"
        )


@contextmanager
def unfinished_file(target: Path, header: bytes) -> Iterator[BinaryIO]:
    """Open a file for everything after the header; it becomes the target when the block ends.

    The file lies hidden in the target's folder, under a name that ends in ``.unfinished``, with
    zeros in place of its header. At the end the content is forced to the disk, then the header
    is written and forced to the disk, and only then does the file get its name. So a process that
    is killed leaves at most a file that no reader takes for a result. An exception removes it.

    Raises
    ------
    StorageError
        If the disk is full.
    InvalidParameterError
        If the target has come into being meanwhile.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.unfinished")
    try:
        with temporary.open("xb") as file:
            file.write(bytes(len(header)))
            yield file
            _force(file)
            file.seek(0)
            file.write(header)
            _force(file)
        publish(temporary, target)
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"no space left while writing; target={str(target)!r} was not made and nothing was "
                "released. Free some space, and release with a new key"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _force(file: BinaryIO) -> None:
    """Force what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish(temporary: Path, target: Path) -> None:
    """Give the finished file its name, without ever replacing another."""
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise InvalidParameterError(
            f"target={str(target)!r} was made by someone else meanwhile; it is not overwritten"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        check_new_file(target)
        temporary.rename(target)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
