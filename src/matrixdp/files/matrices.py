"""Matrices in files: ``.npy``, ``.npz`` with one array, text, Parquet and Arrow."""

import gzip
import io
import zlib
from collections.abc import Collection, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.arrow_format import read_arrow, write_arrow
from matrixdp.files.csv_format import read_csv, write_csv
from matrixdp.files.decimals import Decimals
from matrixdp.files.formats import ARROW, FORMATS, TEXT
from matrixdp.files.progress import Share, parts_of, silent
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["FORMATS", "read_matrix", "write_matrix"]

# So much takes a fraction of a second to write, or to unpack.
_CELLS_TOGETHER = 1 << 20
_BYTES_TOGETHER = 1 << 22


def write_matrix(file: BinaryIO, matrix: MatrixFile, suffix: str, advance: Share = silent) -> None:
    """Write a matrix in the format of a suffix; numbers in text read back to the same floats.

    ``advance`` is called with each further share of it that is written.
    """
    match suffix:
        case ".npy":
            _write_npy(file, matrix.array, advance)
        case ".npz":
            np.savez(file, value=matrix.array)
            advance(1.0)
        case ".csv.gz" | ".tsv.gz":
            # Without the time, so that the same matrix makes the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                write_csv(cast("BinaryIO", packed), matrix, TEXT[suffix], advance)
        case ".csv" | ".tsv":
            write_csv(file, matrix, TEXT[suffix], advance)
        case _ if suffix in ARROW:
            write_arrow(file, matrix, suffix, advance)
        case _:
            raise _unknown_format(suffix)


def _write_npy(file: BinaryIO, array: NDArray[Any], advance: Share) -> None:
    """Write what `numpy.save` writes, in parts: as a single call it could not be interrupted."""
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header | {"fortran_order": False})
    parts = parts_of(len(array), array.shape[1], _CELLS_TOGETHER, advance)
    file.writelines(np.ascontiguousarray(array[part]).data for part in parts)


def read_matrix(
    file: BinaryIO,
    suffix: str,
    name: str,
    *,
    header: bool = False,
    index: bool = False,
    decimals: Decimals = "nearest",
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    offered: Collection[str] = (),
    advance: Share = silent,
) -> MatrixFile:
    """Read a matrix, or raise an error that says what is wrong with the file.

    Parameters
    ----------
    file : binary file
        Open for reading.
    suffix : str
        One of `FORMATS`.
    name : str
        What to call the file in errors.
    header, index : bool
        Whether the first row and the first column are labels. Columns of Parquet and Arrow files
        always have names, which ``header`` makes labels unless they are numbers from 0 on. If
        pandas wrote the index of a frame to such a file, the labels are that index, and without
        ``index`` it is left out, with a warning. Other formats have none.
    decimals : {"nearest", "exact", "up"}, optional
        For text: how decimals become float64. ``"nearest"`` adds to the sensitivity (see
        `cover_decimals`); ``"exact"`` raises if a cell would change, which suits
        counts; ``"up"`` rounds towards infinity, which suits bounds.
    delimiter : str, optional
        For text: what stands between cells; by default what the suffix says.
    columns : sequence of str, optional
        Of text with a header, Parquet and Arrow: names of the columns to read, in this order.
    offered : collection of str, optional
        Options of the command line that errors may advise: those that the caller has.
    advance : callable, optional
        Called with each further share of the file that is read.

    Raises
    ------
    FileFormatError
        If the file is truncated, of another kind, or holds anything but finite numbers.
    """
    match suffix:
        case ".npy":
            loaded = MatrixFile(_load(file, name, np.ndarray))
            # numpy ignores what follows; a second array there would be silently lost.
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
        case _ if suffix in TEXT:
            return read_csv(
                _unpacked(file, suffix, name),
                name,
                header=header,
                index=index,
                decimals=decimals,
                delimiter=TEXT[suffix] if delimiter is None else delimiter,
                columns=columns,
                offered=offered,
                advance=advance,
            )
        case _ if suffix in ARROW:
            return read_arrow(
                file,
                suffix,
                name,
                header=header,
                index=index,
                columns=columns,
                offered=offered,
                advance=advance,
            )
    raise _unknown_format(suffix)


def _unpacked(file: BinaryIO, suffix: str, name: str) -> BinaryIO:
    """Return the text of a file that may be compressed."""
    if not suffix.endswith(".gz"):
        return file
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            content = io.BytesIO()
            # In parts: a single call could not be interrupted.
            while part := packed.read(_BYTES_TOGETHER):
                content.write(part)
            content.seek(0)
            return content
    except (OSError, EOFError, zlib.error):
        raise FileFormatError(
            f"{name} cannot be unpacked: it is cut short, or is not a gzip file; save it again"
        ) from None


def _load(file: BinaryIO, name: str, kind: type) -> Any:
    try:
        loaded = np.load(file, allow_pickle=False)
    except MemoryError:
        raise FileFormatError(
            f"{name} cannot be read: its header asks for more than fits in memory"
        ) from None
    except Exception:  # noqa: BLE001 (numpy raises what its parsers raise: zipfile, zlib, pickle)
        # Not numpy's own message, which advises to allow pickles: they run foreign code.
        raise FileFormatError(
            f"{name} cannot be read: it is cut short, holds something other than numbers, or is "
            "not of the format its name says; save it again"
        ) from None
    if not isinstance(loaded, kind):
        raise FileFormatError(f"{name} is not of the format its name says: rename it")
    return loaded


def _member(archive: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[archive.files[0]])
    except Exception:  # noqa: BLE001 (as above)
        raise FileFormatError(
            f"{name} cannot be read: its array is damaged, or holds something other than numbers; "
            "save it again"
        ) from None


def _unknown_format(suffix: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"the format {suffix!r} is not known: use one of {', '.join(FORMATS)}"
    )
