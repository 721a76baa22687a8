"""Experiments on public data sets: their data, their models, and what runs them."""

from matrixdp.experiments.datasets import DATASETS, load_dataset

__all__ = ["DATASETS", "load_dataset"]
