"""The folder of the data sets: which one it is, and which files belong to each data set."""

import os
from pathlib import Path

from matrixdp.errors import FileFormatError, InvalidParameterError

__all__ = [
    "DATASETS",
    "VARIABLE",
    "checked_name",
    "data_folder",
    "files_of",
    "folder_of_environment",
    "missing_files",
]

VARIABLE = "MATRIXDP_DATA"
"""The environment variable that names the folder."""

_FILES = {
    "mnist": ("mnist.npz",),
    "cifar10": ("cifar10.npz",),
    "svhn": ("svhn.npz",),
    "cora": ("cora.npz",),
    "adult": ("adult.data", "adult.test"),
    "imdb": ("imdb.jsonl.xz",),
}

DATASETS: tuple[str, ...] = tuple(_FILES)
"""The names of the data sets."""


def checked_name(name: str) -> str:
    """Return the name of a data set, or raise if it is not one.

    Raises
    ------
    InvalidParameterError
        With the names that exist.

    Examples
    --------
    >>> checked_name("cora")
    'cora'
    """
    if name not in DATASETS:
        raise InvalidParameterError(
            f"there is no data set {name!r}: choose one of {', '.join(DATASETS)}"
        )
    return name


def folder_of_environment() -> Path | None:
    """Return the folder that the environment variable ``MATRIXDP_DATA`` names; None if none."""
    # An empty value means "not set", as in a shell; it would be the current folder otherwise.
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def data_folder(folder: Path | None = None) -> Path:
    """Return the folder of the data sets: the one that is given, or the one in the environment.

    Parameters
    ----------
    folder : Path, optional
        By default what the environment variable ``MATRIXDP_DATA`` says.

    Raises
    ------
    InvalidParameterError
        If neither names a folder. Whether it exists is not checked.
    """
    found = folder_of_environment() if folder is None else folder
    if found is None:
        raise InvalidParameterError(
            f"no folder of data sets is named: set {VARIABLE} to one, or pass folder; "
            "`python -m matrixdp_experiments data fetch NAME` puts a data set there"
        )
    return found


def missing_files(name: str, folder: Path) -> list[Path]:
    """Return the files of a data set that do not exist in a folder.

    Examples
    --------
    >>> [path.name for path in missing_files("adult", Path("nowhere"))]
    ['adult.data', 'adult.test']
    """
    paths = [folder / file for file in _FILES[checked_name(name)]]
    return [path for path in paths if not path.is_file()]


def files_of(name: str, folder: Path) -> tuple[Path, ...]:
    """Return the files of a data set, or raise if one of them does not exist.

    Raises
    ------
    FileFormatError
        With the first file that is missing, and how to get it.
    """
    missing = missing_files(name, folder)
    if missing:
        raise FileFormatError(
            f"{missing[0]} is missing: get it by `python -m matrixdp_experiments data fetch "
            f"{name}`, or set {VARIABLE} (or pass folder) to a folder that has it"
        )
    return tuple(folder / file for file in _FILES[name])
