"""Checks that a saved file holds its matrix and what its statement declares, and nothing else.

What a reader skips may be private: digits beyond a type's precision, metadata, further columns,
bytes in a gap. A file must be byte for byte what this library writes, except where versions of the
libraries below it are known to differ.
"""

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.csv_format import write_csv
from matrixdp.files.formats.numpy_format import read_layout
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.files.formats.plain import is_plain_header, is_plain_parquet, written_by_arrow
from matrixdp.files.formats.suffixes import TEXT, format_of
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["check_archive", "check_nothing_undeclared"]

# No name, no time, the slowest compression, an unknown system: what Python writes.
_GZIP_START = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"
_SYSTEMS = (0, 3)  # Windows and all others, as Python's zipfile names the one that it runs on
_KIND = "a file as matrixdp saves it"


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
                whole = is_plain_header(file.read(layout.offset))
        else:
            data = source.read_bytes()
            if suffix == ".npz":
                whole = _is_plain_archive(data, ["value.npy"])
            elif suffix in TEXT:
                whole = _is_plain_text(data, matrix, suffix)
            elif suffix == ".parquet":
                whole = is_plain_parquet(data, matrix)
            else:
                whole = written_by_arrow(matrix, suffix) == data
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


def _is_plain_archive(data: bytes, names: list[str]) -> bool:
    """Return whether a zip file is what numpy writes for some arrays, on any system."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        contents = [archive.read(member) for member in members]
    if sorted(member.filename for member in members) != sorted(names):
        return False
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for member, content in zip(members, contents, strict=True):
            plain = zipfile.ZipInfo(member.filename)
            plain.create_system = member.create_system if member.create_system in _SYSTEMS else 3
            with archive.open(plain, "w", force_zip64=True) as file:
                file.write(content)
    return written.getvalue() == data and all(map(_is_plain_array, contents))


def _is_plain_array(content: bytes) -> bool:
    """Return whether the member of an archive is one ``.npy`` file to its last byte."""
    file = io.BytesIO(content)
    array = np.load(file, allow_pickle=False)
    return file.tell() == len(content) and is_plain_header(content[: len(content) - array.nbytes])
