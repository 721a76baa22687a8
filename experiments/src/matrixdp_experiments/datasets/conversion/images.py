"""Images from the files of the authors.

- MNIST's own format, IDX: four bytes that say the kind, the shape, then the numbers.
- CIFAR-10 in its binary version, which needs no pickle: a label, then the planes R, G and B.
- SVHN, cropped digits: files of MATLAB with the records on the last axis.
"""

import gzip
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError

__all__ = [
    "CIFAR10_ARCHIVE",
    "MNIST_FILES",
    "SVHN_FILES",
    "convert_cifar10",
    "convert_mnist",
    "convert_svhn",
]

MNIST_FILES = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}

_UNSIGNED_BYTES = b"\0\0\x08"
CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"

_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("cifar-10-batches-bin/test_batch.bin",)
_RECORD = 1 + 3 * 32 * 32
SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


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


def convert_cifar10(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ``cifar10.npz`` from the archive of the authors.

    Parameters
    ----------
    downloads : mapping of str to Path
        The archive by its name.
    folder : Path
        Where to write.

    Raises
    ------
    FileFormatError
        If the archive does not have the six batches.
    """
    archive = downloads[CIFAR10_ARCHIVE]
    try:
        # Members are read and never extracted, so that no name in the archive becomes a path.
        with tarfile.open(archive, "r:gz") as members:
            train = _records(members, _TRAIN)
            test = _records(members, _TEST)
    except (tarfile.TarError, EOFError, OSError, KeyError) as error:
        raise FileFormatError(f"{archive.name} does not hold six batches of CIFAR-10") from error
    np.savez_compressed(
        folder / "cifar10.npz",
        x_train=_images(train),
        y_train=train[:, 0],
        x_test=_images(test),
        y_test=test[:, 0],
    )


def _records(members: tarfile.TarFile, names: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the records of some batches, one in each row."""
    batches = []
    for name in names:
        file = members.extractfile(name)
        content = b"" if file is None else file.read()
        if not content or len(content) % _RECORD:
            raise FileFormatError(f"{name} is not a number of records of {_RECORD:,} bytes")
        batches.append(np.frombuffer(content, np.uint8).reshape(-1, _RECORD))
    return np.concatenate(batches)


def _images(records: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def convert_svhn(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ``svhn.npz`` from the two files of the authors.

    Parameters
    ----------
    downloads : mapping of str to Path
        The files by their names.
    folder : Path
        Where to write.

    Raises
    ------
    FileFormatError
        If a file does not hold images and labels.
    """
    arrays = {}
    for part, file in SVHN_FILES.items():
        arrays[f"x_{part}"], arrays[f"y_{part}"] = _read(downloads[file])
    np.savez_compressed(folder / "svhn.npz", **arrays)  # type: ignore[arg-type]


def _read(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    from scipy.io import loadmat  # noqa: PLC0415 - only this conversion needs it

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel()
    except Exception as error:  # scipy raises whatever its parser stumbles over
        raise FileFormatError(f"{path.name} does not hold X and y of SVHN") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != len(labels):
        raise FileFormatError(f"{path.name} does not hold one label for each image of bytes")
    # The authors write the digit 0 as 10.
    digits = np.where(labels == 10, 0, labels).astype(np.uint8)
    return np.ascontiguousarray(images.transpose(3, 0, 1, 2)), digits
