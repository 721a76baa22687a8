"""Matrices in folders as zarr (version 3) reads them: a file of metadata, and one for each chunk.

Neither compressed nor sharded, so that a chunk is its numbers and nothing else. Any reader of zarr
reads them; this module needs none.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.chunk_layout import ChunkIndex, ChunkLayout
from matrixdp.files.formats.opening import opened

__all__ = ["ZarrLayout"]

_METADATA = "zarr.json"


@dataclass(frozen=True)
class ZarrLayout(ChunkLayout):
    """A folder of zarr.

    Examples
    --------
    >>> layout = ZarrLayout((5, 4), "float64", (3, 4))
    >>> layout.grid, layout.slices((1, 0))
    ((2, 1), (slice(3, 5, None), slice(0, 4, None)))
    """

    metadata_file: ClassVar[str | None] = _METADATA

    def folders(self) -> list[str]:
        """Return the paths of all folders within the folder, outer ones first."""
        return ["c", *(f"c/{row}" for row in range(self.grid[0]))]

    def chunk_file(self, index: ChunkIndex) -> str:
        """Return the path of a chunk within the folder."""
        return f"c/{index[0]}/{index[1]}"

    def metadata(self) -> bytes:
        """Return the content of the file of metadata."""
        described = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.chunks)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0.0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": {},
        }
        return json.dumps(described, indent=2).encode() + b"\n"

    def contents(self, block: NDArray[Any]) -> list[Any]:
        """Return the numbers of a chunk, and zeros beyond the matrix."""
        whole = np.ascontiguousarray(block)
        if block.shape != self.chunks:
            whole = np.zeros(self.chunks, dtype=block.dtype)
            whole[: block.shape[0], : block.shape[1]] = block
        return [whole.reshape(-1).view("u1").data]

    def numbers(self, content: bytes, index: ChunkIndex) -> NDArray[Any] | None:
        """Return the numbers of a chunk's file, or None if it holds anything else."""
        dtype = np.dtype(self.dtype)
        if len(content) != self.chunks[0] * self.chunks[1] * dtype.itemsize:
            return None
        whole = np.frombuffer(content, dtype=dtype).reshape(self.chunks)
        rows, columns = self.shape_of(index)
        inside = whole[:rows, :columns]
        # As bits: a zero may have a sign, and other bits would be numbers that nobody sees.
        bits = whole.view(f"u{dtype.itemsize}")
        beyond = (bits[rows:], bits[:, columns:])
        return None if any(part.any() for part in beyond) else inside

    @classmethod
    def read(cls, folder: Path) -> "ZarrLayout":
        """Return the layout of a folder that this module would write.

        Raises
        ------
        FileFormatError
            If it is another one: compressed, with attributes, of another version.
        """
        with opened(folder / _METADATA) as file:
            data = file.read()
        try:
            known = msgspec.json.decode(data, type=_Metadata)
            layout = cls(known.shape, known.data_type, known.chunk_grid.configuration.chunk_shape)
            whole = min(*layout.shape, *layout.chunks) > 0 and layout.metadata() == data
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            whole = False
        if not whole or layout.dtype not in {"float64", "float32"}:
            raise FileFormatError(
                f"{folder} is not an array as matrixdp writes it for zarr: its {_METADATA} holds "
                "something else"
            )
        return layout


class _ChunkShape(msgspec.Struct):
    chunk_shape: tuple[int, int]


class _Grid(msgspec.Struct):
    configuration: _ChunkShape


# Only what a layout needs: the rest is compared with what is written for it.
class _Metadata(msgspec.Struct):
    shape: tuple[int, int]
    data_type: str
    chunk_grid: _Grid
