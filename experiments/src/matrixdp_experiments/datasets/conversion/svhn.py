"""SVHN, cropped digits: files of MATLAB with the records on the last axis."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError

__all__ = ["SVHN_FILES", "convert_svhn"]

SVHN_FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}


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
