"""The models of the experiments, in PyTorch (extra ``train``)."""

from matrixdp.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "the models of the experiments need PyTorch: pip install 'matrixdp[train]'"
    ) from None

# Below the check, since all of these import torch.
from matrixdp_experiments.models.choice import model_for
from matrixdp_experiments.models.feature_network import FeatureNetwork
from matrixdp_experiments.models.graph import MixedGCN

__all__ = ["FeatureNetwork", "MixedGCN", "model_for"]
