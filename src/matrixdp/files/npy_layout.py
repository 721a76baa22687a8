"""The layout of ``.npy`` files: what a header says, checked against the file itself."""

from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from matrixdp.errors import FileFormatError
from matrixdp.noise.specification.scales import LARGEST_SCALE_EXPONENT

__all__ = ["NpyLayout", "npy_header", "read_layout"]

# Version 3 differs only for names of fields, which arrays of floats do not have.
_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_NO_HEADER = (
    *(ValueError, KeyError, TypeError, SyntaxError, TokenError),
    *(OverflowError, RecursionError, MemoryError),
)
"""What numpy's parser raises for damaged headers, such as deeply nested brackets."""

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
        float64 or float32, little-endian.
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
    """Read the header of a ``.npy`` file and check it against the length of the file.

    Raises
    ------
    FileFormatError
        If it is not a ``.npy`` file of float64 or float32 in little-endian order with at least one
        axis, if it is cut short, or if something follows the last element.
    """
    with path.open("rb") as file:
        layout = _parse(file, path)
    expected = layout.offset + layout.size * layout.dtype.itemsize
    found = path.stat().st_size
    # Longer files are refused too: nobody could say what the rest is and whether it is private.
    if found != expected:
        raise FileFormatError(
            f"{path} has {found} bytes where its header promises {expected}; it is cut short or "
            "was not written by numpy.save"
        )
    return layout


def _parse(file: BinaryIO, path: Path) -> NpyLayout:
    """Read magic and header, or raise if it is not an array that can be released."""
    try:
        version = npy.read_magic(file)
        shape, fortran_order, dtype = _READERS[version](file)
    except _NO_HEADER as error:
        raise FileFormatError(
            f"{path} is not a .npy file of numbers; write one with numpy.save"
        ) from error
    # numpy reads any tuple of integers; products of huge or negative ones would mislead us below.
    if not _is_shape(shape):
        raise FileFormatError(
            f"the header of {path} gives a shape that no array has; write the file with numpy.save"
        )
    if dtype.str not in LARGEST_SCALE_EXPONENT or not shape:
        raise FileFormatError(
            f"{path} holds an array of dtype {dtype.str!r} and shape {shape}; it must be float64 "
            "or float32, little-endian, with at least one axis"
        )
    return NpyLayout(shape, dtype, fortran_order, file.tell())


def _is_shape(shape: tuple[Any, ...]) -> bool:
    """Return whether these are lengths that an array can have; a truth value is not a length."""
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
    header = BytesIO()
    described = {
        "descr": layout.dtype.str,
        "fortran_order": layout.fortran_order,
        "shape": layout.shape,
    }
    npy.write_array_header_1_0(header, described)
    return header.getvalue()
