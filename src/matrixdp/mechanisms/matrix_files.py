"""Matrices in files: ``.npy``, ``.npz`` with one array, ``.csv``; written whole or not at all."""

import csv
import io
import secrets
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, StorageError
from matrixdp.noise.unfinished import check_new_file, publish, unfinished_file
from matrixdp.parameters import LARGEST_EXACT_INTEGER

__all__ = [
    "FORMATS",
    "MatrixFile",
    "check_target",
    "hidden_name",
    "read_matrix",
    "try_writing",
    "write_all",
    "write_matrix",
]

FORMATS = (".npy", ".npz", ".csv")


@dataclass(frozen=True, repr=False)
class MatrixFile:
    """A matrix and the labels that a CSV file has around it."""

    array: NDArray[Any]
    columns: Sequence[str] | None = None
    index: Sequence[str] | None = None
    corner: str = ""

    def __array__(self, *arguments: Any, **options: Any) -> NDArray[Any]:
        """Return the matrix without its labels."""
        return np.asarray(self.array, *arguments, **options)

    def __repr__(self) -> str:
        """Show the shape alone."""
        return f"MatrixFile(shape={self.array.shape})"


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


def write_matrix(file: BinaryIO, matrix: MatrixFile, suffix: str) -> None:
    """Write a matrix in the format of a suffix; CSV numbers read back to the same floats."""
    match suffix:
        case ".npy":
            np.save(file, matrix.array, allow_pickle=False)
        case ".npz":
            np.savez(file, value=matrix.array)
        case ".csv":
            _write_csv(file, matrix)
        case _:
            raise _unknown_format(suffix)


def read_matrix(
    file: BinaryIO, suffix: str, name: str, *, header: bool = False, index: bool = False
) -> MatrixFile:
    """Read a matrix, or say what is wrong with the file.

    Parameters
    ----------
    file : binary file
        Open for reading.
    suffix : str
        ``.npy``, ``.npz`` or ``.csv``.
    name : str
        What to call the file in errors.
    header, index : bool
        For CSV: whether the first row and the first column are labels.

    Raises
    ------
    FileFormatError
        If it is truncated, of another kind, or holds anything but numbers.
    """
    match suffix:
        case ".npy":
            loaded = MatrixFile(_load(file, name, np.ndarray))
            if file.read(1):
                raise FileFormatError(f"{name} goes on after its array: save it again")
            return loaded
        case ".npz":
            with _load(file, name, np.lib.npyio.NpzFile) as archive:
                if len(archive.files) != 1:
                    raise FileFormatError(
                        f"{name} holds {len(archive.files)} arrays: save one with numpy.savez"
                    )
                return MatrixFile(_member(archive, name))
        case ".csv":
            return _read_csv(file, name, header=header, index=index)
    raise _unknown_format(suffix)


def _load(file: BinaryIO, name: str, kind: type) -> Any:
    try:
        loaded = np.load(file, allow_pickle=False)
    except MemoryError:
        raise FileFormatError(
            f"{name} cannot be read: by what it says of itself it does not fit in memory"
        ) from None
    except Exception:  # noqa: BLE001 (numpy raises what its parsers raise: zipfile, zlib, pickle)
        # Not in numpy's words, which recommend to load foreign code.
        raise FileFormatError(
            f"{name} cannot be read: it is cut short, holds something else than numbers, or is not "
            "what its name says; save it again"
        ) from None
    if not isinstance(loaded, kind):
        raise FileFormatError(f"{name} is not what its name says: rename it, or save it again")
    return loaded


def _member(archive: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[archive.files[0]])
    except Exception:  # noqa: BLE001 (as above)
        raise FileFormatError(
            f"{name} cannot be read: its array is damaged, or holds something else than numbers; "
            "save it again"
        ) from None


def _write_csv(file: BinaryIO, matrix: MatrixFile) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    if matrix.columns is not None:
        corner = [] if matrix.index is None else [matrix.corner]
        writer.writerow([*corner, *matrix.columns])
    for number, row in enumerate(matrix.array):
        label = [] if matrix.index is None else [matrix.index[number]]
        writer.writerow([*label, *map(repr, row.astype(np.float64).tolist())])
    text.flush()
    text.detach()


def _read_csv(file: IO[bytes], name: str, *, header: bool, index: bool) -> MatrixFile:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        rows = list(csv.reader(text, strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise FileFormatError(f"{name} is not CSV text in UTF-8") from None
    finally:
        text.detach()
    while rows and not rows[-1]:
        rows.pop()  # newlines at the end
    titles = rows.pop(0) if header and rows else None
    skip = 1 if index else 0
    widths = {len(row) for row in rows}
    if len(widths) != 1 or 0 in widths or (titles is not None and len(titles) not in widths):
        raise FileFormatError(f"{name} does not have rows of one length: mend it")
    labels = [row[0] for row in rows] if index else None
    array = np.array([[_number(cell, name) for cell in row[skip:]] for row in rows])
    return MatrixFile(
        array,
        columns=None if titles is None else titles[skip:],
        index=labels,
        corner=titles[0] if titles and index else "",
    )


def _number(cell: str, name: str) -> float:
    try:
        number = float(cell.replace("_", "?"))  # Python would read 1_000
    except ValueError:
        raise FileFormatError(
            f"{name} holds a cell that is no number: mend it; a first row or column of labels is "
            "for matrixdp release alone, with --header or --index"
        ) from None
    digits = cell.strip().lstrip("+-").lstrip("0")
    if digits.isdigit() and (len(digits) > 16 or int(digits) > LARGEST_EXACT_INTEGER):
        raise FileFormatError(
            f"{name} holds integers beyond 2**53, which float64 cannot hold exactly: scale them"
        )
    return number


def _unknown_format(suffix: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"the format {suffix!r} is not known: use one of {', '.join(FORMATS)}"
    )
