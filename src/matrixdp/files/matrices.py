"""Matrices in files: ``.npy``, ``.npz`` with one array, ``.csv``."""

import csv
import io
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.parameters import LARGEST_EXACT_INTEGER

__all__ = ["FORMATS", "read_matrix", "write_matrix"]

FORMATS = (".npy", ".npz", ".csv")


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
