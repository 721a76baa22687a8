"""Files that come into being all at once, or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from matrixdp.errors import InvalidParameterError, MatrixDPError, StorageError

__all__ = ["check_new_file", "publish", "storage_errors", "unfinished_file"]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FOLDER_SYNC = {errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def check_new_file(target: Path) -> None:
    """Refuse a target that exists, whose folder does not, or whose name the system refuses."""
    with storage_errors(target):
        taken = target.exists() or target.is_symlink()
    if taken:
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
    is killed leaves at most a file of that hidden name: without a header, or, if it was killed
    between the header and the name, complete. An exception removes it.

    Raises
    ------
    StorageError
        If the disk is full.
    OSError
        If the file cannot be opened (then the block is never entered), or the system reports any
        other error; the target is not made. See ``storage_errors``.
    InvalidParameterError
        If the target has come into being meanwhile.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.unfinished")
    file = _create(temporary, target)
    try:
        with file:
            file.write(bytes(len(header)))
            file.flush()
            yield file
            _force(file)
            file.seek(0)
            file.write(header)
            _force(file)
        publish(temporary, target)
    except OSError as error:
        if error.errno in _FULL:
            raise _not_made(target, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def storage_errors(target: Path) -> Iterator[None]:
    """Turn an error of the system on the way to the target into one that says what became of it.

    Raises
    ------
    StorageError
        Which says that the target was not made, and why.
    """
    try:
        yield
    except MatrixDPError:
        raise
    except OSError as error:
        raise _not_made(target, error) from error


def _create(temporary: Path, target: Path) -> BinaryIO:
    """Open the hidden file, which must be new."""
    try:
        return temporary.open("xb")
    except ValueError as error:  # a name with a zero byte
        raise InvalidParameterError(
            f"target={str(target)!r} is no name of a file; choose another"
        ) from error


def _not_made(target: Path, error: OSError) -> StorageError:
    """Say that the target was not made, and why."""
    if error.errno in _FULL:
        return StorageError(
            f"no space left while writing; target={str(target)!r} was not made and nothing was "
            "released. Free some space, and release with a new key"
        )
    return StorageError(
        f"target={str(target)!r} was not made and nothing was released: "
        f"{error.strerror or type(error).__name__}. Choose a name and a folder that can be written "
        "to; a key that was spent meanwhile is not to be used again"
    )


def _force(file: BinaryIO) -> None:
    """Force what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def publish(temporary: Path, target: Path) -> None:
    """Give the finished file its name, without ever replacing another.

    If the name cannot be forced to the disk the target is removed again: either it is there to stay
    or it was not made. File systems that cannot force a folder are served without.
    """
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
    try:
        _force_folder(target.parent)
    except OSError as error:
        if error.errno in _NO_FOLDER_SYNC:
            return
        target.unlink(missing_ok=True)
        raise


def _force_folder(path: Path) -> None:
    """Force the names in a folder to the disk."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
