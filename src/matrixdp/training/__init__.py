"""Private training in PyTorch (extra ``train``).

`TrainingPlan` says what is done and what that guarantees; `PrivateTraining` does it, in a loop
that is the user's own. See ``docs/training.md``.
"""

from matrixdp.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "private training needs PyTorch: pip install 'matrixdp[train]'"
    ) from None

# Below the check, since all of these import torch.
from matrixdp.training.graph import GraphConvolution, Neighbourhoods, Neighbours, NodeRows
from matrixdp.training.guarantee import TrainingGuarantee
from matrixdp.training.lots import Lot
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.trainer import PrivateTraining

__all__ = [
    "GraphConvolution",
    "Lot",
    "Neighbourhoods",
    "Neighbours",
    "NodeRows",
    "PrivateTraining",
    "TrainingGuarantee",
    "TrainingPlan",
]


def __dir__() -> list[str]:
    return __all__
