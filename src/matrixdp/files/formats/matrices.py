"""Matrices in files: ``.npy``, ``.npz`` with one array, text, Parquet and Arrow."""

import gzip
import io
from collections.abc import Collection, Sequence
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.arrow_format import read_arrow, write_arrow
from matrixdp.files.formats.csv_format import read_csv, write_csv
from matrixdp.files.formats.decimals import Decimals
from matrixdp.files.formats.numpy_format import read_npy, unpacked_arrays
from matrixdp.files.formats.progress import Share, parts_of, silent
from matrixdp.files.formats.suffixes import ARROW, FORMATS, TEXT
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["FORMATS", "read_matrix", "write_matrix"]

# So much takes a fraction of a second to write.
_CELLS_TOGETHER = 1 << 20


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
            return MatrixFile(read_npy(file, file.seek(0, io.SEEK_END), name))
        case ".npz":
            arrays = list(unpacked_arrays(file, name).values())
            if len(arrays) != 1:
                raise FileFormatError(
                    f"{name} holds {len(arrays)} arrays: save one with numpy.savez"
                )
            return MatrixFile(arrays[0])
        case _ if suffix in TEXT:
            return read_csv(
                file,
                suffix,
                name,
                header=header,
                index=index,
                decimals=decimals,
                delimiter=delimiter,
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


def _unknown_format(suffix: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"the format {suffix!r} is not known: use one of {', '.join(FORMATS)}"
    )
