"""Folders and files of an experiment: checked once, before anything is computed or run."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from matrixdp.errors import FileFormatError, InvalidParameterError, StorageError
from matrixdp_experiments.datasets.folder import (
    DATASETS,
    VARIABLE,
    folder_of_environment,
    missing_files,
)

__all__ = ["check_data", "check_results"]


def check_results(folder: Path) -> None:
    """Raise if results cannot be written to a folder, which need not exist yet.

    Raises
    ------
    StorageError
        With the reason of the system.
    """
    for path in (folder, folder / "runs"):
        try:
            # The folder itself is made by what writes first: wrong input leaves none behind.
            nearest = next(one for one in (path, *path.parents) if one.exists())
            # By trying, as permissions do not tell: of a system folder, or to an administrator.
            with tempfile.TemporaryFile(dir=nearest):
                pass
        except OSError as error:
            raise StorageError(
                f"results cannot be written to {path} ({error.strerror}): name another folder by "
                "--results"
            ) from error


def check_data(datasets: Iterable[str]) -> None:
    """Raise if a data set is not in the folder that the environment names.

    Raises
    ------
    InvalidParameterError
        If it names none.
    FileFormatError
        With all files that are missing.
    """
    # What is not in the folder comes with scikit-learn.
    wanted = [name for name in dict.fromkeys(datasets) if name in DATASETS]
    if not wanted:
        return
    folder = folder_of_environment()
    if folder is None:
        raise InvalidParameterError(
            f"no folder of data sets is named: set {VARIABLE} to one; "
            f"`python -m matrixdp_experiments data fetch {' '.join(wanted)}` puts there "
            "what is needed"
        )
    missing = {name: missing_files(name, folder) for name in wanted}
    paths = [path.name for files in missing.values() for path in files]
    if paths:
        names = " ".join(name for name, files in missing.items() if files)
        raise FileFormatError(
            f"{folder} has no {', '.join(paths)}: get what is missing by "
            f"`python -m matrixdp_experiments data fetch {names}`, or set {VARIABLE} to a "
            "folder that has it"
        )
