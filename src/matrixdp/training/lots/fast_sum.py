"""The sum of one lot in the mode ``fast``: batches of many records, added up in float64."""

import numpy as np
import torch
from numpy.typing import NDArray

from matrixdp.training.lots.batch import BatchGradients, Sums
from matrixdp.training.lots.lot import Division, filled
from matrixdp.training.lots.records import RecordSource

__all__ = ["sum_of_lot"]


def sum_of_lot(
    gradients: BatchGradients,
    source: RecordSource,
    numbers: NDArray[np.int64],
    division: Division,
    views: int,
    *,
    filled_on: torch.device | None = None,
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
    division : Division
        How it is divided into batches.
    views : int
        How many rows each record has.
    filled_on : torch.device, optional
        A device that prepares itself anew for every size, as a GPU does, which takes longer than
        the batch itself: batches are filled up to the few sizes of the division. Without it they
        stay as they are.
    """
    sums: Sums = {}
    lot = list(division.batches(numbers))
    sizes = [len(batch) if filled_on is None else division.size_for(batch) for batch in lot]
    records = [filled(batch, size) for batch, size in zip(lot, sizes, strict=True)]
    for batch, size, rows in zip(lot, sizes, source.batches(records, views), strict=True):
        counts = None
        if size > len(batch):
            counts = torch.arange(size, device=filled_on) < len(batch)
        for parameter, total in gradients(rows, size, counts).sums.items():
            if parameter in sums:
                sums[parameter] += total
            else:
                sums[parameter] = total.to(torch.float64)
    return sums
