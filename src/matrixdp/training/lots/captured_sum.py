"""The sum of one lot in batches of a fixed shape, each of them the same work on the same memory.

Lots have random sizes, and a CUDA graph repeats fixed work. So every batch of a lot is filled up to
one size with copies of one of its own records whose weight is zero. Zero times a copy adds exactly
nothing; a gradient that is not finite is set to zero before.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.kernels.cuda_graph import repeatable
from matrixdp.training.lots.batch import BatchGradients, Sums
from matrixdp.training.lots.lot import batched
from matrixdp.training.lots.records import TensorRecords
from matrixdp.training.model.signature import signature_of
from matrixdp.training.model.tensors import address_of, tensors_of
from matrixdp.training.model.trainable import Trainable

__all__ = ["CapturedSum", "padded"]


def padded(numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Fill a batch up to a size.

    Parameters
    ----------
    numbers : array
        The records of the batch, at least one.
    size : int
        How many a batch has.

    Returns
    -------
    array, shape (2, size)
        The records, and for each of these 1, or 0 where it only fills up.
    """
    # Copies of a record of the batch, never of one outside of the lot: nothing may depend on
    # records that were not drawn.
    records = np.pad(numbers, (0, size - len(numbers)), mode="edge")
    return np.stack([records, (np.arange(size) < len(numbers)).astype(np.int64)])


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
    batch_size, views : int
        How many records a batch has, and how many rows each of them.
    expected : float
        How many records a lot is expected to have.
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
        batch_size: int,
        views: int,
        expected: float,
        debug: bool,
    ) -> None:
        device = _common_device(trainable, records)
        self._model = model
        self._gradients = gradients
        self._records = records
        self._size = batch_size
        self._views = views
        self._expected = expected
        self._debug = debug
        # What a graph reads and writes stays at one address for all of its runs.
        first = padded(np.arange(min(batch_size, len(records))), batch_size)
        self._batch = torch.from_numpy(first).to(device)
        self._sums = {
            parameter: torch.zeros_like(parameter, dtype=torch.float64) for parameter in trainable
        }
        self._wrong = torch.zeros((), dtype=torch.bool, device=device)
        self._repeat = repeatable(self._add_batch, device)
        self._state = _state_of(model)

    def check_unchanged(self) -> None:
        """Raise if the model is not what the work was captured with."""
        # Sorted, so that the message does not depend on how sets are ordered.
        changed = sorted({name for name, _ in self._state.items() ^ _state_of(self._model).items()})
        if changed:
            raise InvalidParameterError(
                f"{changed[0]} was added, removed, moved in memory, given other hooks, flags or "
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
        torch._foreach_zero_(list(self._sums.values()))
        self._wrong.zero_()
        lot = batched(numbers, len(self._records), self._expected, self._size)
        batches = [padded(tensor, self._size) for tensor in lot]
        # One copy to the device for the whole lot; the rest stays on it.
        if batches:
            for batch in torch.from_numpy(np.stack(batches)).to(self._batch.device):
                self._batch.copy_(batch)
                self._repeat()
        if self._debug and bool(self._wrong):
            raise InvalidParameterError(
                "debug=True stopped the step: losses or gradients are not finite. Its budget is "
                "spent, and the model was not changed. The loop over training.lots(...) names the "
                "layer. Without debug=True these records add nothing, and nobody learns of them"
            )
        return self._sums

    def _add_batch(self) -> None:
        """Add the batch whose numbers are in place: what a graph repeats."""
        numbers, counts = self._batch
        rows = numbers[:, None].expand(-1, self._views).reshape(-1)
        batch = self._records.rows(rows)
        clipped = self._gradients(batch, self._size, counts, captured=True)
        with torch.no_grad():
            totals = [self._sums[parameter] for parameter in clipped.sums]
            terms = [tensor.to(torch.float64) for tensor in clipped.sums.values()]
            if totals:  # unless all losses are constant
                torch._foreach_add_(totals, terms)
            if self._debug:
                self._wrong |= ~clipped.norms.isfinite().all()


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
