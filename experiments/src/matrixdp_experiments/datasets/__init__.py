"""Six public data sets, read from a folder of files and checked; see ``docs/data.md``.

Nothing here imports PyTorch.
"""

from matrixdp_experiments.datasets.fetching import fetch_dataset
from matrixdp_experiments.datasets.folder import DATASETS, data_folder, missing_files
from matrixdp_experiments.datasets.loading import load_dataset
from matrixdp_experiments.datasets.records import DataSet, GraphData, Records, TextData

__all__ = [
    "DATASETS",
    "DataSet",
    "GraphData",
    "Records",
    "TextData",
    "data_folder",
    "fetch_dataset",
    "load_dataset",
    "missing_files",
]
