"""Matrices, releases and strategies in files: formats, statements, atomic writing, streaming."""

from matrixdp.files.npy_stream import add_noise_to_npy
from matrixdp.files.strategies import SavedStrategy, load_strategy, save_strategy
from matrixdp.files.streamed_release import release_npy

__all__ = ["SavedStrategy", "add_noise_to_npy", "load_strategy", "release_npy", "save_strategy"]
