"""Matrices in folders, in equal chunks: a file for each of them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.noise.application.threads import usable_cores

__all__ = ["ChunkIndex", "ChunkLayout", "Mapper", "by_threads", "root_digest"]

ChunkIndex = tuple[int, int]
"""The row and the column of a chunk among the chunks."""

Mapper: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Applies a function to every item, in any order and anywhere, and yields the results as they come.

Functions and items can be pickled.
"""


@dataclass(frozen=True)
class ChunkLayout(ABC):
    """The shape and type of a matrix, and the shape of its chunks; a subclass for each format.

    A chunk's file holds its numbers and nothing else, so it is neither compressed nor described.
    """

    shape: tuple[int, int]
    dtype: str
    chunks: tuple[int, int]

    metadata_file: ClassVar[str | None] = None
    """The name of the file that says what a folder holds, in formats that have one."""

    @property
    def grid(self) -> tuple[int, int]:
        """How many chunks there are in each direction."""
        return (-(-self.shape[0] // self.chunks[0]), -(-self.shape[1] // self.chunks[1]))

    def indices(self) -> Iterator[ChunkIndex]:
        """Yield the indices of all chunks, row by row."""
        yield from product(range(self.grid[0]), range(self.grid[1]))

    def slices(self, index: ChunkIndex) -> tuple[slice, slice]:
        """Return the part of the matrix that a chunk holds."""
        rows, columns = (
            slice(i * length, min((i + 1) * length, whole))
            for i, length, whole in zip(index, self.chunks, self.shape, strict=True)
        )
        return rows, columns

    def shape_of(self, index: ChunkIndex) -> tuple[int, int]:
        """Return the shape of a chunk; the last ones may be smaller."""
        rows, columns = self.slices(index)
        return rows.stop - rows.start, columns.stop - columns.start

    def folders(self) -> list[str]:
        """Return the paths of all folders within the folder, outer ones first."""
        return []

    def metadata(self) -> bytes:
        """Return the content of the file of metadata, if there is one."""
        return b""

    @abstractmethod
    def chunk_file(self, index: ChunkIndex) -> str:
        """Return the path of a chunk within the folder."""

    @abstractmethod
    def contents(self, block: NDArray[Any]) -> list[Any]:
        """Return what the file of a chunk holds, one buffer after another."""

    @abstractmethod
    def numbers(self, content: bytes, index: ChunkIndex) -> NDArray[Any] | None:
        """Return the numbers of a chunk's file, or None if it holds anything else."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> "ChunkLayout":
        """Return the layout of a folder that this class would write.

        Raises
        ------
        FileFormatError
            If it is another one.
        """

    def check_names(self, folder: Path) -> None:
        """Raise unless a folder holds its files and nothing else, each in its place.

        Raises
        ------
        FileFormatError
            If anything is missing or undeclared.
        """
        found = list(folder.rglob("*"))
        rows, columns = self.grid
        # Before names are made: metadata alone may promise more of them than fit in memory.
        if rows * columns > len(found):
            raise FileFormatError(f"{folder} is not whole: it has fewer files than chunks")
        folders = set(self.folders())
        own = set() if self.metadata_file is None else {self.metadata_file}
        wanted = folders | own | set(map(self.chunk_file, self.indices()))
        for path in found:
            name = path.relative_to(folder).as_posix()
            # A link could lead to something else tomorrow.
            if name not in wanted or path.is_symlink() or path.is_dir() != (name in folders):
                raise FileFormatError(
                    f"{folder} holds more than its statement declares: publish the folder as it "
                    "was written"
                )
        if len(found) < len(wanted):
            raise FileFormatError(f"{folder} is not whole: {len(wanted) - len(found)} files miss")


def root_digest(metadata: bytes, digests: Iterable[str]) -> str:
    """Return the SHA-256 of a folder: of those of its metadata and of its chunks, row by row."""
    root = hashlib.sha256(hashlib.sha256(metadata).digest())
    for digest in digests:
        root.update(bytes.fromhex(digest))
    return root.hexdigest()


def by_threads(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Apply a function to every item with as many threads as there are processors: a `Mapper`."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        try:
            yield from pool.map(work, items)
        finally:
            pool.shutdown(cancel_futures=True)
