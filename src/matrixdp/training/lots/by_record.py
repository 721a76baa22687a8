"""Clipped gradients of a batch whose model cannot be taken apart: the model is run per record."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_unflatten

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.instance_gradient import right_instance_gradients
from matrixdp.training.layers.per_record import as_it_was, plain_kernels
from matrixdp.training.layers.use import KeptGradients, MeasuredUse, PerExample
from matrixdp.training.lots.batch import Losses, gradients_of, losses_of
from matrixdp.training.lots.clipping import ClippedSum, clipped_sum
from matrixdp.training.model.tensors import TensorState
from matrixdp.training.model.trainable import Trainable

__all__ = ["ByRecord"]

# Gradients of whole models are held for no more records at a time than fit into this.
_MOST_BYTES = 1 << 29


class _WithLosses(nn.Module):
    """The losses as a module around the model, whose parameters can then be replaced."""

    def __init__(self, model: nn.Module, losses: Losses) -> None:
        super().__init__()
        self.model = model
        self._losses = losses

    def forward(self, batch: Any, views: int) -> Tensor:
        """Return the loss of one record."""
        return losses_of(self._losses, batch, 1, views)[0]


class ByRecord:
    """The gradients of a model that is run on every record by itself.

    Parameters
    ----------
    model, losses, trainable, views, by_row, debug
        As in `ByLayer`.
    at_once : bool
        Whether ``torch.func.vmap`` runs all records at once; otherwise autograd runs one after
        another.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        trainable: Trainable,
        *,
        views: int,
        by_row: Collection[int],
        debug: bool,
        at_once: bool,
    ) -> None:
        self._model = model
        self._losses = losses
        self._trainable = trainable
        self._views = views
        self._by_row = by_row
        self._debug = debug
        self.at_once = at_once

    def __call__(
        self, batch: Any, examples: int, counts: Tensor | None = None, *, captured: bool = False
    ) -> ClippedSum:
        """Return the clipped sum of a batch; see `BatchGradients`."""
        weight = sum(4 * parameter.numel() for parameter in self._trainable)
        together = max(1, _MOST_BYTES // weight) if self.at_once else 1
        sums: dict[nn.Parameter, Tensor] = {}
        norms = []
        for start in range(0, examples, together):
            records = slice(start, min(start + together, examples))
            chosen = self.records_of(batch, records)
            found = self._clipped(
                chosen,
                records.stop - records.start,
                None if counts is None else counts[records],
                captured=captured,
            )
            norms.append(found.norms)
            for parameter, total in found.sums.items():
                wide = total.to(torch.float64)
                sums[parameter] = sums[parameter] + wide if parameter in sums else wide
        return ClippedSum(sums, torch.cat(norms, dim=1))

    def records_of(self, batch: Any, records: slice) -> Any:
        """Return some of the records of a batch."""
        mine = slice(records.start * self._views, records.stop * self._views)
        leaves, structure = tree_flatten(batch)
        rows = [
            tensor[mine] if index in self._by_row else tensor for index, tensor in enumerate(leaves)
        ]
        return tree_unflatten(rows, structure)

    def _clipped(
        self, batch: Any, examples: int, counts: Tensor | None, *, captured: bool
    ) -> ClippedSum:
        state = TensorState(self._model)
        with right_instance_gradients(self._model):
            form = self._vmapped if self.at_once else self._alone
            gradients, losses = form(batch, examples)
        state.check()
        with torch.no_grad():
            finite = losses.detach().isfinite()
            use = KeptGradients(gradients)
            groups, bounds = self._trainable.groups, self._trainable.bounds
            found = clipped_sum(
                [MeasuredUse("", use, use.norm_bounds())],
                *(groups, bounds),
                counts=finite if counts is None else counts.to(finite.device) * finite,
                captured=captured,
            )
        if self._debug and not bool(finite.all() & found.norms.isfinite().all()):
            raise InvalidParameterError(
                "debug=True stopped the step: losses or gradients are not finite. Its budget is "
                "spent, and the model was not changed. Look for a division by zero or a logarithm "
                "of zero. Without debug=True these records add nothing, and nobody learns of them"
            )
        return found

    def _vmapped(self, batch: Any, examples: int) -> tuple[PerExample, Tensor]:
        wrapped = _WithLosses(self._model, self._losses)
        # By every name, but once for each module: what torch finds by two paths it puts back in the
        # order in which it took it out, and would leave its own tensors there.
        names = {
            f"{path}.{name}": parameter
            for path, module in wrapped.named_modules()
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
            if parameter in self._trainable.names
        }
        values = {name: parameter.detach() for name, parameter in names.items()}
        leaves, structure = tree_flatten(batch)
        axes = [0 if index in self._by_row else None for index in range(len(leaves))]
        rows = [
            tensor if axis is None else tensor.unflatten(0, (examples, -1))
            for tensor, axis in zip(leaves, axes, strict=True)
        ]

        def loss(values: dict[str, Tensor], leaves: list[Any]) -> Tensor:
            one = tree_unflatten(leaves, structure)
            return functional_call(wrapped, values, (one, self._views), tie_weights=False)

        form = vmap(grad_and_value(loss), in_dims=(None, axes), randomness="different")
        with plain_kernels(recurrent=True), as_it_was(self._model):
            found, losses = form(values, rows)
        gradients: PerExample = {}
        for name, parameter in names.items():
            wide = found[name].to(torch.float32)
            gradients[parameter] = gradients[parameter] + wide if parameter in gradients else wide
        return gradients, losses

    def _alone(self, batch: Any, _examples: int) -> tuple[PerExample, Tensor]:
        losses = losses_of(self._losses, batch, 1, self._views)
        parameters = list(self._trainable)
        found = gradients_of(losses, parameters)
        kept = {
            parameter: tensor.to(torch.float32)[None]
            for parameter, tensor in zip(parameters, found, strict=True)
        }
        return kept, losses
