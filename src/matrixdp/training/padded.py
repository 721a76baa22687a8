"""The sum of one lot in batches of a fixed shape, each of them the same work on the same memory.

Lots have random sizes, and a CUDA graph repeats fixed work. So a lot is divided into batches of one
size, and the last one is filled up with copies of one of its own records whose weight is zero. Zero
times a copy adds exactly nothing; a gradient that is not finite is set to zero before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.clipping import clipped_sum
from matrixdp.training.cuda_graph import repeatable
from matrixdp.training.fast_sum import FastLotSum, mixing_layers, recorded_uses
from matrixdp.training.lot_sum import checked_losses
from matrixdp.training.lots import Lot
from matrixdp.training.recording import MeasuredUse, Recording
from matrixdp.training.records import TensorRecords
from matrixdp.training.trainable import Trainable, tensors_of
from matrixdp.training.uncompiled import check_still_uncompiled, uncompiled

__all__ = ["Losses", "PaddedLotSum", "padded_lot"]

Losses = Callable[..., Tensor]
"""One loss for each record or row, given the tensors of a batch."""


def padded_lot(numbers: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Divide a lot into batches of one size.

    Parameters
    ----------
    numbers : array
        The records of the lot; there may be none, which makes no batches.
    size : int
        How many records a batch has.

    Returns
    -------
    array, shape (batches, 2, size)
        For each batch its records, and for each of these 1, or 0 where it only fills up.
    """
    batches = -(-len(numbers) // size)
    filled = batches * size - len(numbers)
    # Copies of a record of the last batch, never of one outside of the lot: nothing may depend on
    # records that were not drawn.
    records = np.pad(numbers, (0, filled), mode="edge") if filled else numbers
    counts = np.arange(batches * size) < len(numbers)
    pairs = np.stack([records, counts.astype(np.int64)])
    return pairs.reshape(2, batches, size).swapaxes(0, 1)


class PaddedLotSum:
    """The sum of clipped gradients of one lot after another, in memory that is used again.

    Parameters
    ----------
    model : nn.Module
        The model, which `losses` runs.
    recording : Recording
        Watches the model.
    trainable : Trainable
        The parameters, their groups and bounds; all on one device.
    records : TensorRecords
        The data, on the same device.
    losses : callable
        Called with the tensors of a batch.
    batch_size, views : int
        How many records a batch has, and how many rows each of them.
    debug : bool
        As in `LotSum`.

    Raises
    ------
    InvalidParameterError, ShapeError
        If the model or the losses cannot be followed. They are run here, before any step.
    """

    def __init__(
        self,
        model: nn.Module,
        recording: Recording,
        trainable: Trainable,
        records: TensorRecords,
        losses: Losses,
        *,
        batch_size: int,
        views: int,
        debug: bool,
    ) -> None:
        device = _common_device(trainable, records)
        self._model = model
        self._recording = recording
        self._trainable = trainable
        self._records = records
        self._losses = losses
        self._size = batch_size
        self._views = views
        self._debug = debug
        self._lot: NDArray[np.int64] = np.empty(0, np.int64)
        # What a graph reads and writes stays in one place for all of its runs.
        first = padded_lot(np.arange(min(batch_size, len(records))), batch_size)[0]
        self._batch = torch.from_numpy(first).to(device)
        # In float64, as in `FastLotSum`.
        self.sums = {part: torch.zeros_like(part, dtype=torch.float64) for part in trainable}
        self._wrong = torch.zeros((), dtype=torch.bool, device=device)
        trainable.forget_gradients()
        self._repeat = repeatable(self._add_batch, device)
        self._try_another_size()
        self._state = _state_of(model)

    def check_unchanged(self) -> None:
        """Raise if the model is not what the work was captured with."""
        # Sorted, so that the message does not depend on how sets are ordered.
        changed = sorted({name for name, _ in self._state.items() ^ _state_of(self._model).items()})
        if changed:
            raise InvalidParameterError(
                f"{changed[0]} was added, removed, moved in memory, or switched between train() "
                "and eval() after the step was captured, which repeats what the model did then: "
                "undo the change, or call training.captured_step(...) again"
            )

    def add_lot(self, numbers: NDArray[np.int64]) -> None:
        """Form the sum of a lot in `sums`, instead of that of the lot before.

        Parameters
        ----------
        numbers : array
            Its records.
        """
        self._lot = numbers
        # Gradients of the user's own, which would be in the place of the noisy ones.
        self._trainable.forget_gradients()
        torch._foreach_zero_(list(self.sums.values()))
        self._wrong.zero_()
        # One copy to the device for the whole lot; the rest stays on it.
        for batch in torch.from_numpy(padded_lot(numbers, self._size)).to(self._batch.device):
            self._batch.copy_(batch)
            self._repeat()

    def _add_batch(self) -> None:
        """Add the batch whose numbers are in place: what a graph repeats."""
        numbers, counts = self._batch
        losses, uses = self._recorded(numbers)
        bounds, groups = self._trainable.bounds, self._trainable.groups
        half = self._recording.half
        with torch.no_grad():
            finite = losses.isfinite()
            counts = counts * finite
            clipped = clipped_sum(uses, groups, bounds, half=half, counts=counts, captured=True)
            totals = [self.sums[part] for part in clipped.sums]
            terms = [part.to(torch.float64) for part in clipped.sums.values()]
            torch._foreach_add_(totals, terms)
            for _, mixed in mixing_layers(uses, losses):
                self._wrong |= mixed
            if self._debug:
                self._wrong |= ~(finite.all() & clipped.norms.isfinite().all())

    def _recorded(self, numbers: Tensor) -> tuple[Tensor, list[MeasuredUse]]:
        """Run losses and model on some records; return a loss for each, and the layers' uses."""
        size = len(numbers)
        rows = numbers[:, None].expand(-1, self._views).reshape(-1)
        state = self._trainable.state()
        # A graph does not mind being repeated within no_grad(). Without one, a step should not fail
        # there either, since it is spent already.
        with (
            torch.enable_grad(),
            uncompiled(),
            self._trainable.right_gradients(),
            self._recording.on(),
        ):
            found = self._losses_of(self._records.rows(rows))
            losses = checked_losses(found, size, self._views)
            self._trainable.check_state(state)
            check_still_uncompiled()
            uses = recorded_uses(self._recording, self._trainable, losses, size, self._views)
            self._trainable.check_state(state)
            return losses, uses

    def _try_another_size(self) -> None:
        """Raise unless the model keeps records apart in a batch of another size as well.

        An input that all records share, such as positions, may by accident be as long as a batch
        has rows, and would then be taken for the batch. It cannot have two lengths.
        """
        # Small, as its memory comes on top of the graph's. Not one: squeeze() would drop the axis.
        size = 3 if self._size == 2 else 2
        device = self._batch.device
        numbers = torch.arange(size, device=device) % len(self._records)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            try:
                self._recorded(numbers)
            # Of any kind: torch raises by itself where shapes do not fit together.
            except Exception as error:
                raise InvalidParameterError(
                    f"losses and model run with batch_size={self._size}, but not with {size} "
                    f"records: {error}. An input that all records share, such as positions, would "
                    "be taken for the batch where it is as long, and mix the records: give each "
                    "record a copy of it, for instance torch.arange(length).expand(len(inputs), "
                    "-1), and take the number of rows from the inputs"
                ) from error

    def _losses_of(self, batch: Any) -> Tensor:
        return self._losses(*batch) if isinstance(batch, tuple) else self._losses(batch)

    def check(self) -> None:
        """Raise as `FastLotSum` does, and name the layer; waits for the device."""
        if not bool(self._wrong):
            return
        # A graph cannot tell which layer it was, so the lot is run once more, layer by layer.
        total = FastLotSum(
            *(self._recording, self._trainable),
            views=self._views,
            examples=len(self._lot),
            debug=self._debug,
        )
        # As in `_add_batch`, also where the step is called within no_grad().
        with torch.enable_grad():
            for batch in Lot(self._records, self._lot, total, self._views).batches(self._size):
                total.add(self._losses_of(batch))
        total.check()
        # Not the same numbers, for instance with dropout.
        raise InvalidParameterError(
            "the step was refused: a layer returns something else for an example alone than in the "
            "batch, or, with debug=True, losses or gradients are not finite. A second run did not "
            "repeat it. Its budget is spent, and the model was not changed"
        )


def _common_device(trainable: Trainable, records: TensorRecords) -> torch.device:
    """Return the one device of model and data."""
    devices = {part.device for part in trainable}
    if len(devices) != 1:
        raise InvalidParameterError(
            f"the model is on several devices ({', '.join(sorted(map(str, devices)))}), and a "
            "captured step runs on one: use the loop over training.lots(...)"
        )
    (device,) = devices
    for part in records.tensors:
        if part.device != device:
            raise InvalidParameterError(
                f"the data is on {part.device} and the model on {device}: a captured step reads "
                f"the records where the model is, so move the data with .to({str(device)!r}), or "
                "use the loop over training.lots(...)"
            )
    return device


def _state_of(model: nn.Module) -> dict[str, object]:
    """Return where the tensors of a model lie, its modules, and which of them are in training."""
    state: dict[str, object] = {name: _place(part) for name, part in tensors_of(model)}
    for name, part in model.named_modules():
        state[f"layer {name!r}" if name else "the model"] = (part, part.training)
    return state


def _place(part: Tensor) -> object:
    if part.layout is torch.strided:
        return part.data_ptr()
    # A sparse tensor has its parts in new places after every change.
    return id(part), part._version  # noqa: SLF001
