"""Clipped gradients of a batch, layer by layer: one backward pass for all records."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.layers.instance_gradient import right_instance_gradients
from matrixdp.training.layers.tracing import Tracer
from matrixdp.training.layers.use import MeasuredUse
from matrixdp.training.lots.batch import Losses, losses_of
from matrixdp.training.lots.by_record import ByRecord
from matrixdp.training.lots.clipping import ClippedSum, clipped_sum
from matrixdp.training.model.tensors import TensorState
from matrixdp.training.model.trainable import Trainable

__all__ = ["ByLayer"]


class ByLayer:
    """The gradients of a model whose layers treat the rows of a batch by themselves.

    A batch in which a layer has other rows than it had when it was checked, as experts have that
    get some of the rows, is run for one record after another. So is one with fewer losses.

    Parameters
    ----------
    model : nn.Module
        The model.
    losses : callable
        The losses of a batch.
    trainable : Trainable
        The parameters, their groups and bounds.
    views : int
        How many rows each record has.
    by_row : collection of int
        The indices of the tensors of a batch that have its rows; others may be as long.
    shared : mapping of str to tuple of bool
        The calls of layers that return something without rows; see `Known`.
    per_loss : int
        Of how many rows each loss is.
    debug : bool
        Whether to raise if a loss or a gradient is not finite.
    """

    at_once = True

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        trainable: Trainable,
        *,
        views: int,
        by_row: Collection[int],
        shared: Mapping[str, tuple[bool, ...]],
        per_loss: int,
        debug: bool,
    ) -> None:
        self._model = model
        self._losses = losses
        self._trainable = trainable
        self._views = views
        self._per_loss = per_loss
        self._debug = debug
        options: Any = {"views": views, "by_row": by_row, "debug": debug}
        self._alone = ByRecord(model, losses, trainable, **options, at_once=False)
        self.tracer = Tracer(model, trainable.names, shared)

    def __call__(
        self, batch: Any, examples: int, counts: Tensor | None = None, *, captured: bool = False
    ) -> ClippedSum:
        """Return the clipped sum of a batch; see `BatchGradients`."""
        state = TensorState(self._model)
        with right_instance_gradients(self._model):
            uses, losses = self._uses(batch, examples)
        # The forward pass, its hooks and functions with a backward pass of their own may write.
        state.check()
        if uses is None:
            return self._apart(batch, examples, counts, captured=captured)
        if not uses:  # constant losses
            return ClippedSum({}, losses.new_zeros(len(self._trainable.bounds), examples))
        with torch.no_grad():
            finite = losses.detach().isfinite()
            if self._debug and not captured:
                _check_finite(finite, uses)
            counted = finite if counts is None else counts.to(finite.device) * finite
            groups, bounds = self._trainable.groups, self._trainable.bounds
            found = clipped_sum(
                uses, groups, bounds, half=self.tracer.half, counts=counted, captured=captured
            )
        # For debugging a captured step, which can only look at what comes back.
        norms = found.norms.masked_fill(~finite, math.inf) if self._debug else found.norms
        return ClippedSum(found.sums, norms)

    def _apart(
        self, batch: Any, examples: int, counts: Tensor | None, *, captured: bool
    ) -> ClippedSum:
        """Return the sum of records one by one, each by the same rule and margin as in a batch.

        By another rule the norms of all would be bounded, and rounded, in another way because of
        one record that is left out.
        """
        if examples == 1:
            return self._alone(batch, 1, counts, captured=captured)
        sums: dict[nn.Parameter, Tensor] = {}
        norms = []
        for number in range(examples):
            one = slice(number, number + 1)
            count = None if counts is None else counts[one]
            found = self(self._alone.records_of(batch, one), 1, count, captured=captured)
            norms.append(found.norms)
            for parameter, total in found.sums.items():
                wide = total.to(torch.float64)
                sums[parameter] = sums[parameter] + wide if parameter in sums else wide
        return ClippedSum(sums, torch.cat(norms, dim=1))

    def _uses(self, batch: Any, examples: int) -> tuple[list[MeasuredUse] | None, Tensor]:
        """Return the uses of all layers and the losses, or None where a layer has other rows."""
        tracer = self.tracer
        with tracer.on(examples * self._views):
            try:
                losses = losses_of(self._losses, batch, examples, self._views, self._per_loss)
                return tracer.uses(losses, examples) if losses.requires_grad else [], losses
            except (InvalidParameterError, ShapeError):
                if not tracer.known.complete:
                    raise
                # Nothing is raised because of how records are routed, or that some are left out.
                return None, torch.empty(0)


def _check_finite(losses: Tensor, uses: Sequence[MeasuredUse]) -> None:
    """Raise for debugging, and name the first layer on the way back from the losses."""
    subject = "" if bool(losses.all()) else "losses"
    for name, _, bounds in uses:
        if bounds and not all(bool(tensor.values.isfinite().all()) for tensor in bounds.values()):
            layer = f"gradients of layer {name!r}" if name else "gradients of the model"
            subject = f"{subject} and {layer}" if subject else layer
            break
    if subject:
        raise InvalidParameterError(
            f"debug=True stopped the step: {subject} are not finite. Its budget is spent, and the "
            "model was not changed. Look for a division by zero or a logarithm of zero. Norms "
            "above about 1e19 cannot be formed in float32 either: scale such losses down. Without "
            "debug=True these records add nothing, and nobody learns of them"
        )
