"""The sum of one lot in batches of a few fixed shapes: always the same work on the same memory.

Lots have random sizes, and a CUDA graph repeats fixed work. So there is a graph for each size that
batches are filled up to.
"""

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.kernels.cuda_graph import repeatable
from matrixdp.training.lots.batch import BatchGradients, Sums, widened
from matrixdp.training.lots.lot import Division, filled
from matrixdp.training.lots.records import TensorRecords, pinned
from matrixdp.training.model.signature import signature_of
from matrixdp.training.model.tensors import address_of, tensors_of
from matrixdp.training.model.trainable import Trainable

__all__ = ["CapturedSum"]


class CapturedSum:
    """The sum of clipped gradients of one lot after another, in memory that is used again.

    Parameters
    ----------
    model : nn.Module
        The model.
    gradients : BatchGradients
        How clipped gradients are formed.
    trainable : Trainable
        The parameters; all on one device.
    records : TensorRecords
        The data, on the same device.
    division : Division
        How lots are divided into batches.
    views : int
        How many rows each record has.
    debug : bool
        Whether to raise if a loss or a gradient is not finite.

    Raises
    ------
    InvalidParameterError
        If that cannot be captured. Losses are run here, before any step.
    """

    def __init__(
        self,
        model: nn.Module,
        gradients: BatchGradients,
        trainable: Trainable,
        records: TensorRecords,
        *,
        division: Division,
        views: int,
        debug: bool,
    ) -> None:
        device = _common_device(trainable, records)
        self._model = model
        self._gradients = gradients
        self._records = records
        self._division = division
        self._views = views
        self._debug = debug
        self._device = device
        # What a graph reads and writes stays at one address for all of its runs.
        self._sums = {one: torch.zeros_like(one, dtype=torch.float64) for one in trainable}
        self._wrong = torch.zeros((), dtype=torch.float64, device=device)
        self._totals = [*self._sums.values(), self._wrong]
        self._batches = {
            size: _with_counts(np.arange(min(size, len(records))), size).to(device)
            for size in division.sizes
        }
        pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._repeat = {
            size: repeatable(partial(self._add, self._batches[size]), device, pool=pool)
            for size in reversed(division.sizes)
        }
        self._state = _state_of(model)

    def check_unchanged(self) -> None:
        """Raise if the model is not what the work was captured with."""
        state = _state_of(self._model)
        if state != self._state:
            # The first in the order of names, since sets have none.
            changed = min(name for name, _ in self._state.items() ^ state.items())
            raise InvalidParameterError(
                f"{changed} was added, removed, moved in memory, given other hooks, flags or "
                "functions, or switched between train() and eval() after the step was captured, "
                "which repeats what the model did then: undo the change, or call "
                "training.captured_step(...) again"
            )

    def __call__(self, numbers: NDArray[np.int64]) -> Sums:
        """Return the sum of a lot, which the next one is written over.

        Raises
        ------
        InvalidParameterError
            For debugging, if something is not finite.
        """
        torch._foreach_zero_(self._totals)
        for batch in self._division.batches(numbers):
            size = self._division.size_for(batch)
            sent = pinned(_with_counts(batch, size), self._device)
            self._batches[size].copy_(sent, non_blocking=True)
            self._repeat[size]()
        if self._debug and bool(self._wrong):
            raise InvalidParameterError(
                "debug=True stopped the step: losses or gradients are not finite. Its budget is "
                "spent, and the model was not changed. The loop over training.lots(...) names the "
                "layer. Without debug=True these records add nothing, and nobody learns of them"
            )
        return self._sums

    def _add(self, batch: Tensor) -> None:
        """Add a batch whose numbers are there: what a graph repeats."""
        numbers, counts = batch
        rows = self._records.rows(numbers[:, None].expand(-1, self._views).reshape(-1))
        clipped = self._gradients(rows, len(numbers), counts, captured=True)
        with torch.no_grad():
            totals = [self._sums[parameter] for parameter in clipped.sums]
            if totals:  # unless all losses are constant
                torch._foreach_add_(totals, list(widened(clipped.sums).values()))
            if self._debug:
                self._wrong += ~clipped.norms.isfinite().all()


def _with_counts(batch: NDArray[np.int64], size: int) -> Tensor:
    """Return a batch that is filled up, and 1 for each of its own records, 0 for others."""
    counts = np.arange(size) < len(batch)
    return torch.from_numpy(np.stack([filled(batch, size), counts]))


def _common_device(trainable: Trainable, records: TensorRecords) -> torch.device:
    """Return the one device of model and data."""
    devices = {parameter.device for parameter in trainable}
    if len(devices) != 1:
        raise InvalidParameterError(
            f"the model is on several devices ({', '.join(sorted(map(str, devices)))}), and a "
            "captured step runs on one: use the loop over training.lots(...)"
        )
    (device,) = devices
    for tensor in records.tensors:
        if tensor.device != device:
            raise InvalidParameterError(
                f"the data is on {tensor.device} and the model on {device}: a captured step reads "
                f"the records where the model is, so move the data with .to({str(device)!r}), or "
                "use the loop over training.lots(...)"
            )
    return device


def _state_of(model: nn.Module) -> dict[str, object]:
    """Return where the tensors of a model lie, its modules, and which of them are in training."""
    state: dict[str, object] = {name: _identity_of(tensor) for name, tensor in tensors_of(model)}
    for name, inner in model.named_modules():
        state[f"layer {name!r}" if name else "the model"] = signature_of(inner)
    return state


def _identity_of(tensor: Tensor) -> object:
    if tensor.layout is torch.strided:
        return address_of(tensor)
    # The tensors inside a sparse one are new ones after every change.
    return id(tensor), tensor._version  # noqa: SLF001
