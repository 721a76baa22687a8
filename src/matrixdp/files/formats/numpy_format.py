"""The opener of ``.npy`` files, whose header is checked before they are read, and of ``.npz``."""

import io
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.opening import foreign_errors, opened
from matrixdp.noise.specification.scales import LARGEST_SCALE_EXPONENT

__all__ = [
    "NpyLayout",
    "map_npy",
    "npy_header",
    "packed_arrays",
    "read_archive",
    "read_layout",
    "read_npy",
    "unpacked_arrays",
]

_KIND = "a .npy file of numbers, as numpy.save writes it"
# Version 3 differs only for names of fields, which arrays of numbers do not have.
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# Booleans, integers with and without a sign, and floats.
_KINDS_OF_NUMBERS = "biuf"
# So much takes a fraction of a second to read.
_BYTES_TOGETHER = 1 << 26
# numpy reads a header by Python's parser, which fails at times if two threads use it at once
# (SystemError, in Python 3.11).
_PARSER = Lock()
if hasattr(os, "register_at_fork"):  # systems without fork do not have it
    # A child must not wait for a thread that it does not have.
    os.register_at_fork(
        before=_PARSER.acquire, after_in_parent=_PARSER.release, after_in_child=_PARSER.release
    )
# The limits of numpy 2.
_MOST_AXES = 64
_LONGEST_AXIS = 1 << 63


@dataclass(frozen=True)
class NpyLayout:
    """Where the elements of a ``.npy`` file are.

    Attributes
    ----------
    shape : tuple[int, ...]
        As the header says.
    dtype : np.dtype
        Of real numbers.
    fortran_order : bool
        Whether the first index runs fastest in the file.
    offset : int
        Bytes before the first element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int

    @property
    def size(self) -> int:
        """How many elements."""
        return prod(self.shape)


def read_layout(path: Path) -> NpyLayout:
    """Read the header of a ``.npy`` file that can be released as it is.

    Raises
    ------
    FileFormatError
        If it is not a ``.npy`` file of float64 or float32 in little-endian order with at least one
        axis, if it is cut short, or if something follows the last element.
    """
    with opened(path) as file:
        layout = _layout(file, file.seek(0, io.SEEK_END), path)
    if layout.dtype.str not in LARGEST_SCALE_EXPONENT or not layout.shape:
        raise FileFormatError(
            f"{path} holds an array of dtype {layout.dtype.str!r} and shape {layout.shape}; it "
            "must be float64 or float32, little-endian, with at least one axis"
        )
    return layout


def map_npy(path: Path) -> NDArray[Any]:
    """Return the array of a ``.npy`` file of any numbers, mapped and not read.

    Raises
    ------
    FileFormatError
        If it is not such a file, is cut short, or goes on after its array.
    """
    with opened(path) as file:
        layout = _layout(file, file.seek(0, io.SEEK_END), path)
        if not layout.size:  # which cannot be mapped
            return np.empty(layout.shape, layout.dtype)
        with foreign_errors(path, _KIND):
            mapped: NDArray[Any] = np.memmap(
                file,
                layout.dtype,
                "r",
                layout.offset,
                layout.shape,
                "F" if layout.fortran_order else "C",
            )
        return mapped


def read_npy(file: BinaryIO, length: int, name: object) -> NDArray[Any]:
    """Return the array of ``.npy`` content of so many bytes, from its first byte on.

    Raises
    ------
    FileFormatError
        As `map_npy`.
    InvalidParameterError
        If the array does not fit in memory.
    """
    layout = _layout(file, length, name)
    with foreign_errors(name, _KIND):
        file.seek(layout.offset)
        array = np.empty(layout.size, layout.dtype)
        content = array.view(np.uint8).data
        # In parts: a single call could not be interrupted.
        for start in range(0, len(content), _BYTES_TOGETHER):
            part = content[start : start + _BYTES_TOGETHER]
            if file.readinto(part) != len(part):  # type: ignore[attr-defined]
                raise FileFormatError(f"{name} is cut short: save it again")
    return array.reshape(layout.shape, order="F" if layout.fortran_order else "C")


def _layout(file: BinaryIO, length: int, name: object) -> NpyLayout:
    """Read magic and header, and check them against the length of the file in bytes."""
    with foreign_errors(name, _KIND), _PARSER, warnings.catch_warnings():
        # numpy warns of headers that Python 2 wrote, and reads them.
        warnings.simplefilter("ignore")
        file.seek(0)
        shape, fortran_order, dtype = _READERS[npy.read_magic(file)](file)
        offset = file.tell()
    # numpy reads any tuple of integers; products of huge or negative ones would mislead us below.
    if not _is_shape(shape):
        raise FileFormatError(
            f"the header of {name} gives a shape that no array has; write the file with numpy.save"
        )
    if dtype.kind not in _KINDS_OF_NUMBERS:
        raise FileFormatError(
            f"{name} holds an array of dtype {dtype.str!r}: save one of real numbers, such as "
            "float64"
        )
    layout = NpyLayout(shape, dtype, fortran_order, offset)
    expected = layout.offset + layout.size * layout.dtype.itemsize
    # Longer files are refused too: nobody could say what the rest is and whether it is private.
    if length != expected:
        fault = "is cut short" if length < expected else "goes on after its array"
        raise FileFormatError(
            f"{name} {fault}: it has {length} bytes, and its header promises {expected}; write it "
            "again with numpy.save"
        )
    return layout


def _is_shape(shape: tuple[Any, ...]) -> bool:
    """Return whether these are lengths that an array can have; a boolean is not a length."""
    return len(shape) <= _MOST_AXES and all(
        type(length) is int and 0 <= length < _LONGEST_AXIS for length in shape
    )


def npy_header(layout: NpyLayout) -> bytes:
    """Return the bytes that come before the elements of such a file.

    Examples
    --------
    >>> npy_header(NpyLayout((2, 3), np.dtype("<f8"), False, 128))[1:6]
    b'NUMPY'
    """
    # Version 1 holds headers of up to 65,535 bytes, more than 64 axes can need.
    header = io.BytesIO()
    described = {
        "descr": layout.dtype.str,
        "fortran_order": layout.fortran_order,
        "shape": layout.shape,
    }
    npy.write_array_header_1_0(header, described)
    return header.getvalue()


def packed_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the content of a ``.npz`` file with these arrays."""
    # Not compressed: noise does not shrink, and readers need no time for it.
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def read_archive(source: Path) -> bytes:
    """Return the content of a file, or raise if there is none."""
    with opened(source) as file:
        return file.read()


def unpacked_arrays(file: BinaryIO, name: object) -> dict[str, NDArray[Any]]:
    """Return the arrays in the content of a ``.npz`` file.

    Raises
    ------
    FileFormatError
        If it is cut short, not such a file, or holds anything but numbers; ``name`` is the file's.
    InvalidParameterError
        If it holds more of them than fit in memory.
    """
    arrays: dict[str, NDArray[Any]] = {}
    with (
        foreign_errors(name, "a .npz file, as numpy.savez writes it"),
        zipfile.ZipFile(file) as archive,
    ):
        for member in archive.infolist():
            called = member.filename.removesuffix(".npy")
            if called in arrays:
                raise FileFormatError(f"{name} holds {called!r} twice: save it again")
            with archive.open(member) as content:
                arrays[called] = read_npy(
                    cast("BinaryIO", content), member.file_size, f"{called!r} in {name}"
                )
    return arrays
