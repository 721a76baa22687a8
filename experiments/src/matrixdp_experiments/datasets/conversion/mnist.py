"""MNIST's own format, IDX: four bytes that say the kind, the shape, then the numbers."""

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError

__all__ = ["MNIST_FILES", "convert_mnist"]

MNIST_FILES = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}

_UNSIGNED_BYTES = b"\0\0\x08"


def convert_mnist(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ``mnist.npz`` from the four files of the authors.

    Parameters
    ----------
    downloads : mapping of str to Path
        The files by their names.
    folder : Path
        Where to write.

    Raises
    ------
    FileFormatError
        If a file is not of that format.
    """
    arrays = {name: _read_idx(downloads[file]) for name, file in MNIST_FILES.items()}
    np.savez_compressed(folder / "mnist.npz", **arrays)  # type: ignore[arg-type]


def _read_idx(path: Path) -> NDArray[np.uint8]:
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:
        raise FileFormatError(f"{path.name} is not a whole gzip file: fetch it again") from error
    if content[:3] != _UNSIGNED_BYTES:
        raise FileFormatError(f"{path.name} does not begin like an IDX file of bytes")
    # The fourth byte is the number of axes; their lengths follow, four bytes each.
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    if len(content) != start + int(np.prod(shape)):
        raise FileFormatError(f"{path.name} is not as long as its header says")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
