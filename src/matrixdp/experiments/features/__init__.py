"""Features of images that are fixed before any record is seen.

Nothing here imports PyTorch.
"""

from matrixdp.experiments.features.image_features import ImageFeatures
from matrixdp.experiments.features.pen_strokes import pen_strokes
from matrixdp.experiments.features.scattering import scattering
from matrixdp.experiments.features.whitening import Whitening

__all__ = ["ImageFeatures", "Whitening", "pen_strokes", "scattering"]
