"""Matrices in folders of ``.npy`` or Parquet files, each with the next rows."""

import io
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.arrow_format import arrow_module, write_arrow
from matrixdp.files.formats.chunk_layout import ChunkIndex, ChunkLayout
from matrixdp.files.formats.numpy_format import (
    NpyLayout,
    map_npy,
    npy_header,
    read_layout,
)
from matrixdp.files.formats.opening import foreign_errors, opened
from matrixdp.files.formats.plain import is_header_of, is_plain_parquet
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["NpyFolder", "ParquetFolder", "RowsFolder"]

# Names sort as the rows do.
_FEWEST_DIGITS = 5
_AXES = 2
_PARQUET = "a Parquet file of numbers"
_PARQUET_TYPES = {"double": "float64", "float": "float32"}


@dataclass(frozen=True)
class RowsFacts:
    """The rows, the columns and the type of the matrix in one file.

    Attributes
    ----------
    names : tuple of str
        Those of the columns, in formats that have them.
    """

    rows: int
    columns: int
    dtype: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowsFolder(ChunkLayout):
    """A folder whose files hold whole rows."""

    suffix: ClassVar[str]

    def chunk_file(self, index: ChunkIndex) -> str:
        """Return the path of a chunk within the folder."""
        digits = max(_FEWEST_DIGITS, len(str(self.grid[0] - 1)))
        return f"part-{index[0]:0{digits}}{self.suffix}"

    @classmethod
    @abstractmethod
    def facts(cls, file: Path) -> RowsFacts:
        """Return what the matrix in a file is, which is not read whole.

        Raises
        ------
        FileFormatError
            If it holds no matrix of float64 or float32.
        """

    @classmethod
    @abstractmethod
    def load(cls, file: Path) -> NDArray[Any]:
        """Return the matrix in a file."""

    @classmethod
    def files(cls, folder: Path) -> list[Path]:
        """Return the files of a folder in their order, at least one."""
        # Others write files of metadata, whose names begin with _ or with a dot.
        found = [file for file in folder.glob(f"*{cls.suffix}") if file.name[0] not in "._"]
        if not found:
            raise FileFormatError(f"{folder} has no {cls.suffix} files: name a folder with some")
        return sorted(found)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the layout of a folder that this class would write.

        Raises
        ------
        FileFormatError
            If it is another one.
        """
        files = cls.files(folder)
        first, last = cls.facts(files[0]), cls.facts(files[-1])
        rows = first.rows * (len(files) - 1) + last.rows
        return cls((rows, first.columns), first.dtype, (first.rows, first.columns))


@dataclass(frozen=True)
class NpyFolder(RowsFolder):
    """A folder of ``.npy`` files, as numpy reads them.

    Examples
    --------
    >>> NpyFolder((5, 4), "float64", (3, 4)).chunk_file((1, 0))
    'part-00001.npy'
    """

    suffix: ClassVar[str] = ".npy"

    def contents(self, block: NDArray[Any]) -> list[Any]:
        """Return a header and the numbers of a chunk."""
        whole = np.ascontiguousarray(block)
        header = npy_header(NpyLayout(whole.shape, whole.dtype, fortran_order=False, offset=0))
        return [header, whole.reshape(-1).view("u1").data]

    def numbers(self, content: bytes, index: ChunkIndex) -> NDArray[Any] | None:
        """Return the numbers of a chunk's file, or None if it holds anything else."""
        shape, dtype = self.shape_of(index), np.dtype(self.dtype)
        offset = len(content) - shape[0] * shape[1] * dtype.itemsize
        layout = NpyLayout(shape, dtype, fortran_order=False, offset=offset)
        if offset < 0 or not is_header_of(layout, content[:offset]):
            return None
        return np.frombuffer(content, dtype, offset=offset).reshape(shape)

    @classmethod
    def facts(cls, file: Path) -> RowsFacts:
        """Return what the matrix in a file is, from its header."""
        layout = read_layout(file)
        if len(layout.shape) != _AXES or not layout.size:
            raise FileFormatError(f"{file} has shape {layout.shape}: a matrix has rows and columns")
        return RowsFacts(layout.shape[0], layout.shape[1], layout.dtype.name)

    @classmethod
    def load(cls, file: Path) -> NDArray[Any]:
        """Return the matrix in a file."""
        return np.array(map_npy(file))


@dataclass(frozen=True)
class ParquetFolder(RowsFolder):
    """A folder of Parquet files, whose columns are named by their numbers from 0."""

    suffix: ClassVar[str] = ".parquet"

    def contents(self, block: NDArray[Any]) -> list[Any]:
        """Return a Parquet file with the numbers of a chunk."""
        file = io.BytesIO()
        write_arrow(file, MatrixFile(np.asarray(block)), self.suffix)
        return [file.getbuffer()]

    def numbers(self, content: bytes, index: ChunkIndex) -> NDArray[Any] | None:
        """Return the numbers of a chunk's file, or None if it holds anything else."""
        try:
            with foreign_errors("a chunk", _PARQUET):
                array = _numbers_of(io.BytesIO(content))
                plain = is_plain_parquet(content, MatrixFile(array))
        except FileFormatError:
            return None
        same = array.shape == self.shape_of(index) and array.dtype == np.dtype(self.dtype)
        return array if plain and same else None

    @classmethod
    def facts(cls, file: Path) -> RowsFacts:
        """Return what the matrix in a file is, from its footer."""
        with opened(file) as source, foreign_errors(file, _PARQUET):
            found = arrow_module("pyarrow.parquet").ParquetFile(source)
            kinds = {str(kind) for kind in found.schema_arrow.types}
            rows = found.metadata.num_rows
        if len(kinds) != 1 or not kinds <= _PARQUET_TYPES.keys() or not rows:
            raise FileFormatError(
                f"{file} does not have rows of float64 alone, or of float32: cast its columns, and "
                "leave others out"
            )
        names = tuple(found.schema_arrow.names)
        return RowsFacts(rows, len(names), _PARQUET_TYPES[kinds.pop()], names)

    @classmethod
    def load(cls, file: Path) -> NDArray[Any]:
        """Return the matrix in a file; missing values are not numbers, and are refused later."""
        with opened(file) as source, foreign_errors(file, _PARQUET):
            return _numbers_of(source)


def _numbers_of(source: Any) -> NDArray[Any]:
    table = arrow_module("pyarrow.parquet").read_table(source)
    return np.column_stack([column.to_numpy() for column in table.columns])
