"""The models of the experiments, in PyTorch (extra ``train``)."""

from matrixdp.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "the models of the experiments need PyTorch: pip install '.[train]' in a clone of matrixdp"
    ) from None

# Below the check, since all of these import torch.
from matrixdp_experiments.models.graph import MixedGCN
from matrixdp_experiments.models.networks import FeatureNetwork, model_for

__all__ = ["FeatureNetwork", "MixedGCN", "model_for"]
