"""Experiments on public data sets: their data, features and models, and what runs them."""

from matrixdp_experiments.datasets import DATASETS, load_dataset
from matrixdp_experiments.features import ImageFeatures, pen_strokes, scattering

__all__ = ["DATASETS", "ImageFeatures", "load_dataset", "pen_strokes", "scattering"]
