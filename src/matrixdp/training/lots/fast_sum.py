"""The sum of one lot in the mode ``fast``: batches of many records, added up in float64."""

import numpy as np
import torch
from numpy.typing import NDArray

from matrixdp.training.lots.batch import BatchGradients, Sums
from matrixdp.training.lots.lot import batched
from matrixdp.training.lots.records import RecordSource
from matrixdp.training.plan import TrainingPlan

__all__ = ["sum_of_lot"]


def sum_of_lot(
    gradients: BatchGradients,
    source: RecordSource,
    numbers: NDArray[np.int64],
    plan: TrainingPlan,
    size: int,
) -> Sums:
    """Return the sum of a lot's clipped gradients.

    It is formed in float64 whatever the model's type is. The spacing of float32 doubles at a power
    of two, and batches of just above half of it would move a sum beyond it twice as fast as one
    below: the distance of neighbours would double, and again at the next power.

    Parameters
    ----------
    gradients : BatchGradients
        How gradients are formed.
    source : RecordSource
        The data.
    numbers : array
        The records of the lot, ascending.
    plan : TrainingPlan
        The plan.
    size : int
        How many records a batch may have.
    """
    sums: Sums = {}
    lot = list(batched(numbers, plan.records, plan.lot_size, size))
    # Lots have many sizes, and cuDNN would try its algorithms out for each, which takes seconds.
    tried = torch.backends.cudnn.benchmark
    try:
        torch.backends.cudnn.benchmark = False
        for records, batch in zip(lot, source.batches(lot, plan.views), strict=True):
            for parameter, total in gradients(batch, len(records)).sums.items():
                if parameter in sums:
                    sums[parameter] += total
                else:
                    sums[parameter] = total.to(torch.float64)
    finally:
        torch.backends.cudnn.benchmark = tried
    return sums
