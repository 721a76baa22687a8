"""Several files that appear together, each complete, all of them or none."""

import secrets
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.files.unfinished import check_new_file, publish, unfinished_file

__all__ = ["check_target", "hidden_name", "try_writing", "write_all"]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse an existing target unless forced, and a missing folder, before any work is done."""
    if path.is_file():
        if force:
            return
        raise InvalidParameterError(
            f"{path} exists: choose another name, or force it (force=True, --force)"
        )
    check_new_file(path)


def write_all(contents: Sequence[tuple[Path, bytes | Path]], *, force: bool = False) -> None:
    """Make several files appear, each complete, all of them or none.

    Everything is first written under hidden names beside the targets, so that a full disk changes
    nothing; then the files get their names in the order given. A content may also be the path of a
    hidden file that is complete already; it is taken. Existing targets are replaced only if forced,
    and come back if a later one cannot be.
    """
    hidden: list[tuple[Path, Path]] = []
    with ExitStack() as always, ExitStack() as on_failure:
        for path, content in contents:
            fresh = hidden_name(path) if isinstance(content, bytes) else content
            always.callback(fresh.unlink, missing_ok=True)
            hidden.append((fresh, path))
            if isinstance(content, bytes):
                _write_hidden(fresh, content, path)
        for fresh, path in hidden[:-1]:
            former = _set_aside(path)
            if former is not None:
                always.callback(former.unlink, missing_ok=True)
            _give_name(fresh, path, force=force)
            on_failure.callback(_take_back, path, former)
        for fresh, path in hidden[-1:]:
            _give_name(fresh, path, force=force)
        on_failure.pop_all()


def try_writing(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write several files under hidden names beside the targets, and remove them again.

    What stands in the way of `write_all`, such as a full disk, is told while it costs nothing.
    """
    with ExitStack() as always:
        for path, content in contents:
            fresh = hidden_name(path)
            always.callback(fresh.unlink, missing_ok=True)
            _write_hidden(fresh, content, path)


def _take_back(path: Path, former: Path | None) -> None:
    """Undo the making of a file: what it replaced is there again."""
    if former is None:
        path.unlink(missing_ok=True)
    else:
        former.replace(path)


def _set_aside(path: Path) -> Path | None:
    """Copy an existing file to a hidden name; return that name, or None if there is no file."""
    former = hidden_name(path)
    try:
        shutil.copyfile(path, former)
    except FileNotFoundError:
        return None
    except OSError as error:
        former.unlink(missing_ok=True)
        raise StorageError(f"{path} could not be set aside: {error.strerror}") from error
    return former


def hidden_name(path: Path) -> Path:
    """Return a fresh hidden name beside a target."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")


def _write_hidden(fresh: Path, content: bytes, path: Path) -> None:
    try:
        with unfinished_file(fresh, b"") as file:
            file.write(content)
    except StorageError as error:
        raise StorageError(f"no space left for {path}: nothing was written") from error
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error


def _give_name(fresh: Path, path: Path, *, force: bool) -> None:
    try:
        if force:
            fresh.replace(path)
        else:
            publish(fresh, path)
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}") from error
