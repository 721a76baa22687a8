"""Folders of chunks by the names that say their format."""

import hashlib
from pathlib import Path

from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.chunk_layout import ChunkLayout, by_threads, root_digest
from matrixdp.files.formats.opening import opened
from matrixdp.files.formats.stacked_folder import NpyFolder, ParquetFolder
from matrixdp.files.formats.suffixes import CHUNKED
from matrixdp.files.formats.zarr_folder import ZarrLayout

__all__ = ["folder_digest", "layout_kind", "read_layout_of"]

_KINDS: dict[str, type[ChunkLayout]] = {
    ".zarr": ZarrLayout,
    ".npy": NpyFolder,
    ".parquet": ParquetFolder,
}


def layout_kind(folder: Path) -> type[ChunkLayout]:
    """Return the kind of the folder of a name.

    Raises
    ------
    InvalidParameterError
        If the name does not say one.

    Examples
    --------
    >>> layout_kind(Path("out.zarr")).__name__
    'ZarrLayout'
    """
    kind = _KINDS.get(folder.suffix.lower())
    if kind is None:
        raise InvalidParameterError(
            f"{folder} is not the name of a folder of chunks, which ends in {', '.join(CHUNKED)}"
        )
    return kind


def read_layout_of(folder: Path) -> ChunkLayout:
    """Return the layout of a folder as this library writes it.

    Raises
    ------
    FileFormatError, InvalidParameterError
        If it is another one.
    """
    return layout_kind(folder).read(folder)


def folder_digest(folder: Path) -> str:
    """Return the digest of a folder as it is on disk.

    Raises
    ------
    FileFormatError
        If it is not a folder as this library writes it.
    """
    layout = read_layout_of(folder)
    layout.check_names(folder)
    files = [folder / layout.chunk_file(index) for index in layout.indices()]
    return root_digest(layout.metadata(), by_threads(_file_digest, files))


def _file_digest(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
