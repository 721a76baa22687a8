"""Arrays of a ``.npz`` file, exactly of the kinds and shapes that are expected."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError

__all__ = ["ArrayFormat", "check_labels", "damaged", "read_arrays"]


class ArrayFormat(NamedTuple):
    """What an array of a file has to be."""

    dtype: str
    shape: tuple[int, ...]


def damaged(path: Path, what: str) -> NoReturn:
    """Raise because a file is not what it should be.

    Raises
    ------
    FileFormatError
        With the file, what is wrong with it, and the way out.
    """
    # Never removed or replaced by the program itself: it may be all that the user has.
    raise FileFormatError(
        f"{path} {what}: remove it, and fetch it again by "
        "`python -m matrixdp_experiments data fetch`"
    )


def read_arrays(path: Path, expected: Mapping[str, ArrayFormat]) -> dict[str, NDArray[Any]]:
    """Return arrays of a ``.npz`` file.

    Parameters
    ----------
    path : Path
        The file; it is opened without pickle, so that no code in it can run.
    expected : mapping of str to ArrayFormat
        The name of each array, and what it has to be. Others in the file are not read.

    Raises
    ------
    FileFormatError
        If the file is cut short or damaged, or an array is missing or of another kind.
    """
    arrays = {}
    try:
        # Member by member, from the disk: the file itself is never in memory as a whole. It is
        # opened here, since numpy leaves a damaged file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            for name in expected:
                if name in archive.files:
                    arrays[name] = archive[name]
    except Exception:  # noqa: BLE001 (numpy raises whatever zipfile, zlib and its parser raise)
        damaged(path, "cannot be read: it is cut short, or is not a .npz file of numbers")
    for name, (dtype, shape) in expected.items():
        if name not in arrays:
            damaged(path, f"has no array {name!r}")
        if arrays[name].dtype != dtype or arrays[name].shape != shape:
            damaged(
                path,
                f"has an array {name!r} of {arrays[name].dtype} with shape {arrays[name].shape} "
                f"instead of {dtype} with shape {shape}",
            )
    return arrays


def check_labels(path: Path, name: str, labels: NDArray[np.uint8], classes: int) -> None:
    """Raise if a label is not below the number of classes.

    Raises
    ------
    FileFormatError
        With the file and the array.
    """
    if labels.size and not int(labels.max()) < classes:
        damaged(path, f"has a label above {classes - 1} in {name!r}")
