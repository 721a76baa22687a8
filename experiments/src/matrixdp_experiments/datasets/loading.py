"""One function for all data sets."""

from collections.abc import Callable
from pathlib import Path

from matrixdp_experiments.datasets.adult import load_adult
from matrixdp_experiments.datasets.cora import load_cora
from matrixdp_experiments.datasets.folder import checked_name, data_folder, files_of
from matrixdp_experiments.datasets.images import CIFAR10, MNIST, SVHN, load_images
from matrixdp_experiments.datasets.imdb import load_imdb
from matrixdp_experiments.datasets.records import DataSet, GraphData, TextData

__all__ = ["load_dataset"]

# Each takes the files of its data set, in the order in which the folder lists them.
_LOADERS: dict[str, Callable[..., DataSet | GraphData | TextData]] = {
    "mnist": lambda path: load_images(path, MNIST),
    "cifar10": lambda path: load_images(path, CIFAR10),
    "svhn": lambda path: load_images(path, SVHN),
    "cora": load_cora,
    "adult": load_adult,
    "imdb": load_imdb,
}


def load_dataset(name: str, folder: Path | None = None) -> DataSet | GraphData | TextData:
    """Return a data set from the folder of data sets.

    Parameters
    ----------
    name : str
        One of `DATASETS`.
    folder : Path, optional
        By default the folder that the environment variable ``MATRIXDP_DATA`` names.

    Returns
    -------
    DataSet, GraphData or TextData
        Cora is a graph, IMDB has texts, and the others have records.

    Raises
    ------
    InvalidParameterError
        If there is no such data set, or no folder is named.
    FileFormatError
        If a file is missing, damaged, or not what its name says; the message names it.

    Examples
    --------
    >>> load_dataset("adult", Path("nowhere"))
    Traceback (most recent call last):
        ...
    matrixdp.errors.FileFormatError: nowhere/adult.data is missing: get it by ...
    """
    loader = _LOADERS[checked_name(name)]
    return loader(*files_of(name, data_folder(folder)))
