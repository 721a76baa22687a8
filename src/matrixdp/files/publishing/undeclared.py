"""Checks that a saved file holds its matrix and what its statement declares, and nothing else.

What a reader skips may be private: digits beyond a type's precision, metadata, further columns,
bytes in a gap. Text must be byte for byte what this library writes. The other formats are written
by libraries whose versions differ in a few bytes, so their parts are accounted for one by one.
"""

import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.arrow_format import arrow_module, arrow_schema
from matrixdp.files.formats.csv_format import write_csv
from matrixdp.files.formats.numpy_format import read_layout
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.files.formats.suffixes import TEXT, format_of
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["check_archive", "check_nothing_undeclared"]

# No name, no time, the slowest compression, an unknown system: what Python writes.
_GZIP_START = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
_NO_DATE = (1980, 1, 1, 0, 0, 0)
# Lengths of zip's own headers, without the names in them.
_LOCAL, _CENTRAL, _END, _END_OF_LARGE = 30, 46, 22, 76
_LARGE_SIZES = 20  # bytes that hold the sizes of a member that may be large
_MAKERS = re.compile(r"parquet-cpp-arrow version \d+\.\d+\.\d+")
_KIND = "a file as matrixdp saves it"
_PARQUET_ENDS = 12  # PAR1 in front; the length of the footer and PAR1 at the end


def check_nothing_undeclared(source: Path, matrix: MatrixFile) -> None:
    """Raise unless a file is what the library writes for a matrix and its labels.

    Raises
    ------
    FileFormatError
        If it holds anything else.
    """
    suffix = format_of(source)
    with foreign_errors(source, _KIND):
        if suffix == ".npy":
            layout = read_layout(source)
            with source.open("rb") as file:
                whole = _is_plain_header(file.read(layout.offset))
        else:
            data = source.read_bytes()
            if suffix == ".npz":
                whole = _is_plain_archive(data, ["value.npy"])
            elif suffix in TEXT:
                whole = _is_plain_text(data, matrix, suffix)
            elif suffix == ".parquet":
                whole = _is_plain_parquet(data, matrix)
            else:
                whole = _is_plain_arrow(data, matrix)
    if not whole:
        raise FileFormatError(
            f"{source} holds more than the matrix and the labels that its statement declares, or "
            "was written by another program: publish the file that Release.save wrote"
        )


def check_archive(data: bytes, names: list[str], source: Path) -> None:
    """Raise unless a ``.npz`` file holds arrays of these names, in any order, and nothing else."""
    with foreign_errors(source, _KIND):
        whole = _is_plain_archive(data, [f"{name}.npy" for name in names])
    if not whole:
        raise FileFormatError(f"{source} holds more than its arrays: publish it as it was saved")


def _is_plain_text(data: bytes, matrix: MatrixFile, suffix: str) -> bool:
    """Return whether text is what `write_csv` writes, as it is or in one part of a gzip file."""
    if suffix.endswith(".gz"):
        unpacked = zlib.decompressobj(wbits=31)
        content = unpacked.decompress(data)
        if not data.startswith(_GZIP_START) or not unpacked.eof or unpacked.unused_data:
            return False
        data = content
    written = io.BytesIO()
    write_csv(written, matrix, TEXT[suffix])
    return written.getvalue() == data


def _is_plain_header(header: bytes) -> bool:
    """Return whether the start of a ``.npy`` file is what numpy writes, up to spaces at its end."""
    file = io.BytesIO(header)
    if npy.read_magic(file) != (1, 0):
        return False
    shape, fortran_order, dtype = npy.read_array_header_1_0(file)
    plain = io.BytesIO()
    described = {"descr": dtype.str, "fortran_order": fortran_order, "shape": shape}
    npy.write_array_header_1_0(plain, described)
    expected = plain.getvalue()
    # Versions of numpy differ in how much space they leave for a longer shape; 64 divides all.
    return (
        len(header) <= len(expected)
        and len(header) % npy.ARRAY_ALIGN == 0
        and header[10:].rstrip(b" \n") == expected[10:].rstrip(b" \n")
        and header.endswith(b"\n")
        and header.count(b"\n", 10) == 1
    )


def _is_plain_archive(data: bytes, names: list[str]) -> bool:
    """Return whether every byte of a zip file belongs to one of some arrays, or is zip's own."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        if sorted(member.filename for member in members) != sorted(names) or archive.comment:
            return False
        offset = 0
        for member in members:
            start = offset + _LOCAL + len(member.filename.encode())
            extra = int.from_bytes(data[offset + 28 : offset + 30], "little")
            plain = (
                member.header_offset == offset
                and member.compress_type == zipfile.ZIP_STORED
                and member.date_time == _NO_DATE
                and not (member.comment or member.extra or member.flag_bits)
                and extra in (0, _LARGE_SIZES)
                and data[start : start + min(extra, 4)] in (b"", b"\x01\x00\x10\x00")
            )
            offset = start + extra + member.file_size
            if not plain or not _is_plain_array(data[start + extra : offset]):
                return False
    listed = sum(_CENTRAL + len(name.encode()) for name in names)
    return len(data) - offset - listed in (_END, _END + _END_OF_LARGE)


def _is_plain_array(content: bytes) -> bool:
    """Return whether the member of an archive is one ``.npy`` file to its last byte."""
    file = io.BytesIO(content)
    array = np.load(file, allow_pickle=False)
    return file.tell() == len(content) and _is_plain_header(content[: len(content) - array.nbytes])


def _is_plain_parquet(data: bytes, matrix: MatrixFile) -> bool:
    """Return whether a Parquet file has the columns of a matrix, no metadata and no gaps."""
    arrow = arrow_module()
    file = arrow_module("pyarrow.parquet").ParquetFile(arrow.BufferReader(data))
    footer = file.metadata
    columns = [
        footer.row_group(group).column(column)
        for group in range(footer.num_row_groups)
        for column in range(footer.num_columns)
    ]
    packed = sum(column.total_compressed_size for column in columns)
    return (
        file.schema_arrow.equals(arrow_schema(matrix), check_metadata=True)
        and set(footer.metadata or {}) <= {b"ARROW:schema"}
        and _MAKERS.fullmatch(footer.created_by or "") is not None
        and not any(column.is_stats_set for column in columns)
        and packed + footer.serialized_size + _PARQUET_ENDS == len(data)
    )


def _is_plain_arrow(data: bytes, matrix: MatrixFile) -> bool:
    """Return whether an Arrow file has the columns of a matrix and no metadata."""
    arrow = arrow_module()
    file: Any = arrow_module("pyarrow.ipc").open_file(arrow.BufferReader(data))
    numbers = range(file.num_record_batches)
    if not file.schema.equals(arrow_schema(matrix), check_metadata=True):
        return False
    if any(file.get_batch_with_custom_metadata(number)[1] for number in numbers):
        return False
    # The same batches, written again, are as long: no bytes are left for anything else.
    written = io.BytesIO()
    with arrow_module("pyarrow.ipc").new_file(written, file.schema) as writer:
        for number in numbers:
            writer.write_batch(file.get_batch(number))
    return len(written.getvalue()) == len(data)
