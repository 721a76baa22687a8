"""CIFAR-10 in its binary version, which needs no pickle: a label, then the planes R, G and B."""

import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError

__all__ = ["CIFAR10_ARCHIVE", "convert_cifar10"]

CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"

_TRAIN = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
_TEST = ("cifar-10-batches-bin/test_batch.bin",)
_RECORD = 1 + 3 * 32 * 32


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
