"""Files that are what this library writes, up to what versions of numpy and pyarrow vary."""

import io
import re

from numpy.lib import format as npy

from matrixdp.files.formats.arrow_format import arrow_module, write_arrow
from matrixdp.files.formats.numpy_format import NpyLayout, npy_header
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["is_header_of", "is_plain_header", "is_plain_parquet", "written_by_arrow"]

_MAKERS = re.compile(r"parquet-cpp-arrow version \d{1,3}\.\d{1,3}\.\d{1,3}")
_LENGTH = slice(8, 10)  # where a header of version 1 says how long it is
_PARQUET_ENDS = 12  # PAR1 in front; the length of the footer and PAR1 at the end


def is_plain_header(header: bytes) -> bool:
    """Return whether the start of a ``.npy`` file is what numpy writes, up to spaces at its end."""
    file = io.BytesIO(header)
    if npy.read_magic(file) != (1, 0):
        return False
    shape, fortran_order, dtype = npy.read_array_header_1_0(file)
    return is_header_of(NpyLayout(shape, dtype, fortran_order, len(header)), header)


def is_header_of(layout: NpyLayout, header: bytes) -> bool:
    """Return whether a header is what numpy writes for a layout, up to spaces at its end."""
    expected = npy_header(layout)
    length = int.from_bytes(header[_LENGTH], "little")
    # Versions of numpy differ in how much space they leave for a longer shape; 64 divides all.
    return (
        len(header) <= len(expected)
        and len(header) % npy.ARRAY_ALIGN == 0
        and length == len(header) - _LENGTH.stop
        and header[: _LENGTH.start] == expected[: _LENGTH.start]
        and header[_LENGTH.stop :].rstrip(b" \n") == expected[_LENGTH.stop :].rstrip(b" \n")
        and header.endswith(b"\n")
        and header.count(b"\n", _LENGTH.stop) == 1
    )


def is_plain_parquet(data: bytes, matrix: MatrixFile) -> bool:
    """Return whether a Parquet file is what `write_arrow` writes.

    Another version of pyarrow may write other bytes: then whether it has the same columns and
    metadata, which all versions write alike, and no gaps.
    """
    written = written_by_arrow(matrix, ".parquet")
    footer, own = (
        arrow_module("pyarrow.parquet").read_metadata(io.BytesIO(content))
        for content in (data, written)
    )
    if footer.created_by == own.created_by:
        return written == data
    columns = [
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    ]
    packed = sum(column.total_compressed_size for column in columns)
    return (
        footer.schema.equals(own.schema)
        and footer.metadata == own.metadata
        and _MAKERS.fullmatch(footer.created_by or "") is not None
        and not any(column.is_stats_set for column in columns)
        and packed + footer.serialized_size + _PARQUET_ENDS == len(data)
    )


def written_by_arrow(matrix: MatrixFile, suffix: str) -> bytes:
    """Return a file of a matrix and its labels, as this pyarrow writes it."""
    written = io.BytesIO()
    write_arrow(written, matrix, suffix)
    return written.getvalue()
