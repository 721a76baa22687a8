"""Sources of the data sets: addresses and checksums, as published loaders have them.

Those of Cora are in PyTorch Geometric, ``torch_geometric/datasets/planetoid.py``, which has no
checksums. The others are in TensorFlow Datasets, ``tensorflow_datasets/url_checksums``, files
``mnist.txt``, ``cifar10.txt``, ``svhn_cropped.txt``, ``adult.txt`` and ``imdb_reviews.txt``.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from matrixdp_experiments.datasets.adult import load_adult
from matrixdp_experiments.datasets.conversion.cora import CORA_FILES, convert_cora
from matrixdp_experiments.datasets.conversion.images import (
    CIFAR10_ARCHIVE,
    convert_cifar10,
    convert_mnist,
    convert_svhn,
)
from matrixdp_experiments.datasets.conversion.imdb import IMDB_ARCHIVE, convert_imdb
from matrixdp_experiments.datasets.cora import check_cora_content
from matrixdp_experiments.datasets.images import CIFAR10, MNIST, SVHN, read_images
from matrixdp_experiments.datasets.imdb import load_imdb

__all__ = ["SOURCES", "Source"]


@dataclass(frozen=True)
class Source:
    """How a data set is fetched.

    Attributes
    ----------
    address : str
        Of the folder that has the files, with a slash at the end.
    downloads : mapping of str to str or None
        The files, and the SHA-256 of each; None where nobody publishes one.
    convert : callable
        Writes the files that are read into a folder, from the files that were fetched, by name.
    check : callable
        Raises if these files, its arguments, are not what they should be.
    """

    address: str
    downloads: Mapping[str, str | None]
    convert: Callable[[Mapping[str, Path], Path], None]
    check: Callable[..., object]


def _copy(downloads: Mapping[str, Path], folder: Path) -> None:
    """Keep files as they are."""
    for name, path in downloads.items():
        shutil.copyfile(path, folder / name)


SOURCES = {
    "mnist": Source(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        {
            "train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "train-labels-idx1-ubyte.gz": (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        },
        convert_mnist,
        lambda path: read_images(path, MNIST),
    ),
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        {CIFAR10_ARCHIVE: "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
        convert_cifar10,
        lambda path: read_images(path, CIFAR10),
    ),
    "svhn": Source(
        # Without encryption, as its authors have it; the checksums are what protects it.
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
        convert_svhn,
        lambda path: read_images(path, SVHN),
    ),
    "cora": Source(
        "https://github.com/kimiyoung/planetoid/raw/master/data/",
        # No checksums: the content is checked after its conversion, and no code in a file is run.
        dict.fromkeys(CORA_FILES),
        convert_cora,
        check_cora_content,
    ),
    "adult": Source(
        "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
        {
            "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        },
        _copy,
        load_adult,
    ),
    "imdb": Source(
        "http://ai.stanford.edu/~amaas/data/sentiment/",
        {IMDB_ARCHIVE: "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"},
        convert_imdb,
        load_imdb,
    ),
}
