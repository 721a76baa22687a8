"""Features of images that are fixed before any record is seen.

Nothing here imports PyTorch.
"""

from matrixdp_experiments.features.image_features import ImageFeatures
from matrixdp_experiments.features.pen_strokes import pen_strokes
from matrixdp_experiments.features.scattering import scattering
from matrixdp_experiments.features.whitening import Whitening

__all__ = ["ImageFeatures", "Whitening", "pen_strokes", "scattering"]
