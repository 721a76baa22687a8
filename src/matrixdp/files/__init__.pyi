from .publishing.npy_stream import add_noise_to_npy
from .publishing.strategies import SavedStrategy, load_strategy, save_strategy
from .publishing.streamed_release import release_npy

__all__ = ["SavedStrategy", "add_noise_to_npy", "load_strategy", "release_npy", "save_strategy"]
