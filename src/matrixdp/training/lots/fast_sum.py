"""The sum of one lot in the mode ``fast``: batches of many records, added up in float64."""

import numpy as np
import torch
from numpy.typing import NDArray

from matrixdp.training.lots.batch import BatchGradients, Sums, widened
from matrixdp.training.lots.lot import Division, filled
from matrixdp.training.lots.records import RecordSource

__all__ = ["prepares_for_sizes", "sum_of_lot"]


def prepares_for_sizes(device: torch.device) -> bool:
    """Return whether a device prepares itself anew for every size of a batch.

    On a GPU libraries choose or even try their algorithms for each, and memory is sorted by size,
    which can take longer than the batch. A CPU takes any size, and its time grows with each row.
    """
    return device.type != "cpu"


def sum_of_lot(
    gradients: BatchGradients,
    source: RecordSource,
    numbers: NDArray[np.int64],
    division: Division,
    *,
    views: int,
    device: torch.device,
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
    device : torch.device
        Where the model is.
    """
    sums: Sums = {}
    # A record that runs alone is a batch of one size.
    fills = gradients.at_once and prepares_for_sizes(device)
    lot = list(division.batches(numbers))
    sizes = [division.size_for(batch) if fills else len(batch) for batch in lot]
    records = [filled(batch, size) for batch, size in zip(lot, sizes, strict=True)]
    for batch, size, rows in zip(lot, sizes, source.batches(records, views), strict=True):
        full = size == len(batch)
        counts = None if full else torch.arange(size, device=device) < len(batch)
        found = gradients(rows, size, counts).sums
        first = {parameter: total for parameter, total in found.items() if parameter not in sums}
        for parameter in found.keys() - first.keys():
            sums[parameter] += found[parameter]
        sums.update(widened(first))
    return sums
