"""The clipped sum of one lot, batch by batch: every record counts once, whatever the loop does."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.clipping import clipped_sum
from matrixdp.training.layers.use import NormBounds
from matrixdp.training.recording import MeasuredUse, Recording
from matrixdp.training.trainable import Trainable

__all__ = ["LotSum"]


class _Evidence(NamedTuple):
    """What tells whether a batch was finite: small tensors, read once in a step."""

    losses: Tensor
    norms: Tensor
    layers: Sequence[tuple[str, Mapping[nn.Parameter, NormBounds] | None]]


class LotSum:
    """The sum of the clipped gradients of one lot.

    The recording is on only from a batch being handed out until its losses are accumulated, so
    that nothing else the user does with the model is touched.

    Parameters
    ----------
    recording : Recording
        Watches the model.
    trainable : Trainable
        The parameters, their groups and bounds.
    views : int
        How many rows each example has.
    examples : int
        How many examples the lot has.
    """

    def __init__(
        self, recording: Recording, trainable: Trainable, *, views: int, examples: int
    ) -> None:
        self._recording = recording
        self._trainable = trainable
        self._views = views
        self._missing = examples
        self._batch: int | None = None  # the examples of the batch that is handed out
        self._handed_out = False
        self._watching = ExitStack()
        self._evidence: list[_Evidence] = []
        self.sums: dict[nn.Parameter, Tensor] = {}

    def begin(self) -> None:
        """Note that batches are handed out; a second time, records would count twice."""
        if self._handed_out:
            raise InvalidParameterError(
                "the batches of this lot were handed out already, and each record may count once: "
                "go through lot.batches(...) once, and call training.step()"
            )
        # Once for each lot and not for each batch: it goes through the whole model.
        self._trainable.check_unchanged()
        self._handed_out = True

    def expect(self, examples: int) -> None:
        """Watch the model from here on: a batch of so many examples is handed out."""
        self.check_accumulated()
        self._trainable.forget_gradients()
        self._batch = examples
        self._watching.enter_context(self._recording.on())

    def end(self) -> None:
        """Hand out no more batches; one that is under way can no longer be accumulated."""
        self._watching.close()
        self._batch = None

    def check_accumulated(self) -> None:
        """Raise if the last batch was handed out and its losses were not accumulated."""
        if self._batch is not None:
            raise InvalidParameterError(
                "the losses of the last batch were not accumulated: call "
                "training.accumulate(losses) once for each batch"
            )

    def check_complete(self) -> None:
        """Raise unless every example of the lot was accumulated."""
        self.check_accumulated()
        if self._missing:
            raise InvalidParameterError(
                "the lot is not complete: go through all of lot.batches(...) and accumulate the "
                "losses of each batch before training.step()"
            )

    def add(self, losses: Tensor) -> None:
        """Clip and add the gradients of the batch that was handed out.

        Raises
        ------
        InvalidParameterError, ShapeError
            If there is no such batch, or these are not its losses.
        """
        if self._batch is None:
            raise InvalidParameterError(
                "there is no batch whose losses these are: call training.accumulate(losses) once "
                "for each batch, within `for ... in lot.batches(...)`"
            )
        examples = self._batch
        # Checked before the backward pass, so that the call can be made again with the right ones.
        by_example = _checked_losses(losses, examples, self._views)
        try:
            uses = self._recording.backward(by_example, examples * self._views, examples)
        finally:
            self._watching.close()
        self._trainable.check_no_gradients()
        if not uses:
            raise InvalidParameterError(
                "losses do not depend on any layer that is trained: compute them from the model's "
                "outputs for this batch"
            )
        self._clip(uses, by_example.detach())
        self._batch = None
        self._missing -= examples

    def _clip(self, uses: Sequence[MeasuredUse], losses: Tensor) -> None:
        clipped = clipped_sum(
            uses, self._trainable.groups, self._trainable.bounds, half=self._recording.half
        )
        # In float32 whatever the model's type is: 16 bits would lose small examples in the sum.
        for parameter, total in clipped.sums.items():
            if parameter in self.sums:
                self.sums[parameter] += total
            else:
                self.sums[parameter] = total.to(torch.float32)
        # Only names and norms are kept: the uses hold the activations of the batch.
        layers = [(use.name, use.norm_bounds) for use in uses]
        self._evidence.append(_Evidence(losses, clipped.norms, layers))

    def check_finite(self, matrices: Sequence[Tensor]) -> None:
        """Raise if a loss, a norm or a sum is not finite; waits for the device once.

        Parameters
        ----------
        matrices : sequence of Tensor
            The sums, as they are about to get noise.
        """
        parts = [*matrices, *(part for batch in self._evidence for part in batch[:2])]
        # A sum is finite only if its terms are; float64, so that none overflows on the way.
        totals = [part.sum(dtype=torch.float64) for part in parts]
        device = totals[0].device
        whole = torch.stack([total.to(device, non_blocking=True) for total in totals]).sum()
        if not math.isfinite(whole.item()):
            raise InvalidParameterError(
                f"the step was refused: {self._first_not_finite()} not finite. Its budget is "
                "spent, and the model was not changed. Look for a division by zero, a logarithm "
                "of zero or a learning rate that is too large"
            )

    def _first_not_finite(self) -> str:
        """Name the layer: the first one on the way back from the losses."""
        # Slow, with a wait for every layer, but only on the way to an error.
        for batch in self._evidence:
            subject = "losses and" if not batch.losses.isfinite().all() else ""
            for name, bounds in batch.layers:
                if bounds is not None and not all(_finite(part) for part in bounds.values()):
                    return f"{subject} gradients of layer {name!r} are".strip()
            if not batch.norms.isfinite().all():
                shared = sorted({name for name, bounds in batch.layers if bounds is None})
                return f"{subject} gradients of one of the layers {shared!r} are".strip()
            if subject:
                return "losses are"
        return "the sum of gradients is"


def _finite(bounds: NormBounds) -> bool:
    return bool(bounds.values.isfinite().all())


def _checked_losses(losses: Tensor, examples: int, views: int) -> Tensor:
    """Return one loss for each example, or raise if they are not the losses of the batch."""
    if not isinstance(losses, Tensor):
        raise InvalidParameterError(f"losses is a {type(losses).__name__}: pass a tensor")
    if losses.ndim == 0:
        raise ShapeError(
            "losses were reduced to one number, but each example's gradient is clipped by itself: "
            'use reduction="none", and pass one loss per example'
        )
    if losses.ndim > 1 or len(losses) not in (examples, examples * views):
        raise ShapeError(
            f"losses have shape {tuple(losses.shape)}, but the batch has {examples} examples of "
            f"{views} rows each: pass one loss per example or per row, for instance "
            "losses.flatten(1).mean(1)"
        )
    if not losses.requires_grad:
        raise InvalidParameterError(
            "losses have no gradient: compute them from the model's outputs, not under "
            "torch.no_grad() and not detached"
        )
    return losses if len(losses) == examples else losses.reshape(examples, views).mean(1)
