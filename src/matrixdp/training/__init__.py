"""Private training in PyTorch (extra ``train``).

`TrainingPlan` says what is done and what that guarantees; `PrivateTraining` does it, in a loop
that is the user's own. See ``docs/training.md``.
"""

from matrixdp.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "private training needs PyTorch: pip install '.[train]' in a clone of matrixdp"
    ) from None

# Below the check, since all of these import torch.
from matrixdp.training.checks.repeated import RepeatedTrainingWarning
from matrixdp.training.graph.convolution import GraphConvolution
from matrixdp.training.graph.neighbourhoods import Neighbourhoods, Neighbours, NodeRows
from matrixdp.training.guarantee import TrainingGuarantee
from matrixdp.training.lots.lot import Lot
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.progress import TrainingProgress
from matrixdp.training.trainer import PrivateTraining
from matrixdp.training.units import Units

__all__ = [
    "GraphConvolution",
    "Lot",
    "Neighbourhoods",
    "Neighbours",
    "NodeRows",
    "PrivateTraining",
    "RepeatedTrainingWarning",
    "TrainingGuarantee",
    "TrainingPlan",
    "TrainingProgress",
    "Units",
]


def __dir__() -> list[str]:
    return __all__
