"""Files that appear complete or not at all, alone or several together.

Everything is written once, under a hidden name beside its target, and forced to the disk. Only then
does it get its name, so that a full disk or a crash leaves the targets as they were.
"""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from matrixdp.errors import InvalidParameterError, MatrixDPError, StorageError
from matrixdp.interrupts import interrupts_held

__all__ = [
    "check_inputs_survive",
    "check_new_file",
    "check_target",
    "force_folder",
    "hidden_beside",
    "hidden_file",
    "let_others_read",
    "publish",
    "remove",
    "remove_unfinished",
    "storage_errors",
    "unfinished_file",
    "write_all",
]

# No space on the disk, in the user's quota, or within the limit on the size of a file.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What tells hidden names of one target apart.
_HIDDEN_BYTES = 8
_HIDDEN = re.compile(f"[0-9a-f]{{{2 * _HIDDEN_BYTES}}}")
# Errors of systems that do not support an operation, as opposed to failures of it.
_NO_FOLDER_SYNC = {errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def check_target(path: Path, *, force: bool) -> None:
    """Raise if a file cannot be written here, before any work is done.

    Raises
    ------
    InvalidParameterError
        If the target exists and is not forced, is not a file, or if its folder does not exist.
    """
    _check_name(path)
    if path.is_file():
        if force:
            return  # its folder exists, and it is replaced only when everything is written
        raise InvalidParameterError(
            f"{path} exists: choose another name, or force it (force=True, --force)"
        )
    check_new_file(path)


def check_new_file(target: Path) -> None:
    """Raise if the target exists, its folder does not, or its name is not one the system allows."""
    _check_name(target)
    with storage_errors(target):
        # A symbolic link that leads nowhere does not exist, but its name is taken.
        taken = target.exists() or target.is_symlink()
    if taken:
        raise InvalidParameterError(
            f"target={str(target)!r} exists and is never overwritten; choose another name"
        )
    if not target.parent.is_dir():
        raise InvalidParameterError(
            f"the folder of target={str(target)!r} does not exist; make it first"
        )


def write_all(
    contents: Sequence[tuple[Path, bytes | Path]], *, force: bool = False, release: bool = False
) -> None:
    """Make several files appear, each complete, all of them or none.

    Parameters
    ----------
    contents : sequence of (path, content)
        The targets, which get their names in this order. A content is either bytes or the path of
        a complete hidden file beside the target, which is moved.
    force : bool, optional
        Whether existing targets are replaced. They come back if a later target cannot be written.
    release : bool, optional
        Whether the files publish a release: once they have their names, a program is not
        interrupted any more; see `interrupts_held`.

    Raises
    ------
    InvalidParameterError
        If a target exists and is not forced.
    StorageError
        If a file cannot be written. In both cases all targets are as they were before.
    KeyboardInterrupt
        All targets are as they were before; or all of them are there, if the interrupt came while
        they got their names.
    """
    hidden: list[tuple[Path, Path]] = []
    with ExitStack() as always:
        # All contents are on the disk before the first file gets its name: what is most likely to
        # fail, a full disk, then changes nothing.
        for path, content in contents:
            fresh = _hidden_name(path) if isinstance(content, bytes) else content
            always.callback(_remove, fresh)
            hidden.append((fresh, path))
            if isinstance(content, bytes):
                with hidden_file(fresh, path) as file:
                    file.write(content)
        # Between two names an interrupt would leave a matrix without its statement.
        with interrupts_held(release=release):
            _give_names(hidden, always, force=force)


@contextmanager
def hidden_beside(target: Path) -> Iterator[Path]:
    """Yield a fresh hidden name beside a target; the file of that name is removed at the end."""
    hidden = _hidden_name(target)
    try:
        yield hidden
    finally:
        _remove(hidden)


@contextmanager
def hidden_file(hidden: Path, target: Path) -> Iterator[BinaryIO]:
    """Open a new hidden file for the content of a target, which errors name.

    When the block ends the content is forced to the disk. An exception removes the file.

    Raises
    ------
    StorageError
        If the file cannot be opened or written.
    """
    try:
        with unfinished_file(hidden, b"") as file:
            yield file
    except MatrixDPError:
        raise  # a StorageError is an OSError too, and has its own message
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(f"no space left for {target}: nothing was written") from error
        raise StorageError(f"{target} could not be written: {_reason(error)}") from error


@contextmanager
def unfinished_file(hidden: Path, header: bytes) -> Iterator[BinaryIO]:
    """Open a new hidden file for everything after its header, which is written last.

    The block writes the content; zeros stand in place of the header meanwhile. When the block ends
    the content is forced to the disk, and only then is the header written and forced too. So a
    process that is killed leaves a file that no reader accepts, unless it was complete. An
    exception removes the file. Only its owner may read it: what is not out may be noise that is
    drawn again for another value.

    Raises
    ------
    OSError
        If the file cannot be opened (then the block is never entered) or written.
    """
    file = open(hidden, "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
    try:
        with file:
            # Zeros are not the start of any format that a reader knows.
            file.write(bytes(len(header)))
            file.flush()  # a disk without space for the header is noticed before anything is drawn
            yield file
            _force(file)
            # Without the first force the system might write the header to the disk before the rest.
            if header:
                file.seek(0)
                file.write(header)
                _force(file)
    except BaseException:
        _remove(hidden)
        raise


def publish(hidden: Path, target: Path) -> None:
    """Give a complete hidden file its name, without ever replacing another file.

    The hidden name may remain; the caller removes it.
    If the name cannot be forced to the disk the target is removed again: either it is there to stay
    or it was not made. On file systems that cannot force a folder this step is left out.

    Raises
    ------
    InvalidParameterError
        If the target was created in the meantime.
    OSError
        If the system reports an error; the target is not made.
    """
    try:
        # A link fails if the name is taken, where a rename would replace the other file.
        os.link(hidden, target)
    except FileExistsError as error:
        raise InvalidParameterError(
            f"target={str(target)!r} was made by someone else meanwhile; it is not overwritten"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without links there is a moment between the check and the rename. It is the best that
        # such a file system offers.
        check_new_file(target)
        hidden.rename(target)
    try:
        force_folder(target.parent)
    except OSError:
        target.unlink(missing_ok=True)
        raise


def let_others_read(hidden: Path, rights: int = 0o666) -> None:
    """Give what is hidden and about to get its name the rights that new files (0o666) have."""
    if os.name == "posix":
        mask = os.umask(0o077)
        os.umask(mask)
        with suppress(OSError):  # on file systems without such rights
            hidden.chmod(rights & ~mask)


def force_folder(path: Path) -> None:
    """Force the names in a folder to the disk, unless its file system cannot do that."""
    try:
        _force_folder(path)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


@contextmanager
def storage_errors(target: Path) -> Iterator[None]:
    """Turn an error of the system into a `StorageError` that says the target was not made."""
    try:
        yield
    except MatrixDPError:
        raise  # a StorageError is an OSError too, and has its own message
    except OSError as error:
        if error.errno in _FULL:
            raise StorageError(
                f"no space left while writing; target={str(target)!r} was not made and nothing was "
                "released. Free some space, and release with a new key"
            ) from error
        raise StorageError(
            f"target={str(target)!r} was not made and nothing was released: {_reason(error)}. "
            "Choose a name and a folder that can be written to; a key that was spent meanwhile "
            "must not be used again"
        ) from error


def _check_name(target: Path) -> None:
    """Raise if a name holds a zero byte, or is not text in UTF-8, which statements are written in.

    Before anything is drawn: a system may allow such a name, but the statement could not hold it.
    """
    try:
        target.name.encode()
        valid = b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        valid = False
    if not valid:
        raise InvalidParameterError(
            f"target={str(target)!r} is not a valid file name; choose another"
        )


def _hidden_name(target: Path) -> Path:
    """Return a fresh hidden name in the target's folder, so that a rename stays on one disk."""
    return target.with_name(f".{target.name}.{secrets.token_hex(_HIDDEN_BYTES)}.unfinished")


def remove(path: Path) -> None:
    """Remove a file or a folder of chunks, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove(hidden: Path) -> None:
    """Remove what is hidden if possible; leftovers must not make anything else fail."""
    with suppress(OSError):
        remove(hidden)


def remove_unfinished(target: Path) -> None:
    """Remove what attempts at a target left that were killed: hidden ones of its name alone."""
    begin, end = f".{target.name}.", ".unfinished"
    with suppress(OSError):
        for found in target.parent.iterdir():
            middle = found.name.removeprefix(begin).removesuffix(end)
            if found.name == begin + middle + end and _HIDDEN.fullmatch(middle):
                _remove(found)


def _set_aside(path: Path) -> Path | None:
    """Keep an existing file under a second, hidden name; return that name, or None if none exists.

    A link copies nothing, and leaves the file in its place until it is replaced.
    """
    former = _hidden_name(path)
    try:
        try:
            # If the path is a symbolic link, then the link itself is what will be replaced.
            os.link(path, former, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            shutil.copyfile(path, former)
    except FileNotFoundError:
        return None
    except OSError as error:
        _remove(former)
        raise StorageError(f"{path} could not be set aside: {_reason(error)}") from error
    return former


def _give_names(hidden: Sequence[tuple[Path, Path]], always: ExitStack, *, force: bool) -> None:
    """Give complete hidden files their names, all or none; what is left over goes at the end."""
    # This stack ends before the other one: names are restored before hidden files go.
    with ExitStack() as on_failure:
        for fresh, path in hidden[:-1]:
            former = _set_aside(path)
            if former is not None:
                always.callback(_remove, former)
            _give_name(fresh, path, force=force)
            on_failure.callback(_take_back, path, former)
        # Nothing can fail after the last one, so it need not be undone.
        for fresh, path in hidden[-1:]:
            _give_name(fresh, path, force=force)
        on_failure.pop_all()


def _give_name(fresh: Path, path: Path, *, force: bool) -> None:
    let_others_read(fresh)
    try:
        if force:
            fresh.replace(path)  # in one step: readers see the old file or the new one
        else:
            publish(fresh, path)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {_reason(error)}") from error


def _take_back(path: Path, former: Path | None) -> None:
    """Undo the making of a file: restore what it replaced."""
    if former is None:
        path.unlink(missing_ok=True)
    else:
        former.replace(path)


def _force(file: BinaryIO) -> None:
    """Force what was written to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _force_folder(path: Path) -> None:
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def check_inputs_survive(written: Iterable[Path], read: Iterable[Path]) -> None:
    """Raise if a file that is to be written is one that is read.

    Not even by force: the private matrix may have no other copy. Files are compared, not names:
    links, relative paths and letter case lead to the same file under other names.
    """
    inputs = [path for path in read if path.exists()]
    for target in written:
        for source in inputs:
            # What does not exist yet cannot be an input, and `samefile` would fail on it.
            if target.exists() and target.samefile(source):
                raise InvalidParameterError(
                    f"{target} would replace {source}, which is read: choose another name to write "
                    "to (--force does not change that)"
                )
