"""Watching a model run: the inputs of its layers, and the gradients of their outputs.

While a recording is on, no layer's parameters take part in the backward pass: it only computes the
gradients of the activations, which is what per-example gradients are made of. Nothing is stored in
the model: hooks are global and know the modules, so that its class, its ``state_dict`` and its
pickles stay what they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.layers.table import check_layer, layer_uses
from matrixdp.training.layers.use import LayerUse

__all__ = ["LayerRecord", "Recording"]


class LayerRecord:
    """One call of one layer: what went in, and as the backward pass goes on what comes back."""

    def __init__(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.name = name
        self.module = module
        self.inputs = tuple(part.detach() if isinstance(part, Tensor) else part for part in inputs)
        self.gradients: dict[int, Tensor] = {}

    def tap(self, place: int, output: Tensor) -> Tensor:
        """Return an output whose gradient will be kept under a number."""

        def keep(gradient: Tensor) -> None:
            self.gradients[place] = gradient

        if not output.requires_grad:
            # Nothing before this layer needs a gradient, so autograd would not come here.
            output = _Rooted.apply(output, torch.ones((), requires_grad=True))
        output.register_hook(keep)
        return output


class _Rooted(torch.autograd.Function):
    """The identity, on a tensor that autograd would otherwise take for a constant."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _root: Tensor) -> Tensor:
        # Marked as changed in place: a following layer may then change it in place as well.
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(_ctx: Any, *_gradients: Tensor) -> tuple[None, None]:
        return None, None


class Recording:
    """The layers of a model that have parameters to train, and their calls.

    Parameters
    ----------
    model : nn.Module
        Any module.

    Raises
    ------
    InvalidParameterError
        If a layer mixes examples, or is of a kind that cannot be differentiated example by example.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names: dict[nn.Module, str] = {}
        self._own: dict[nn.Module, tuple[nn.Parameter, ...]] = {}
        for name, module in model.named_modules():
            own = tuple(part for part in module.parameters(recurse=False) if part.requires_grad)
            check_layer(module, name)
            if own:
                self._names[module], self._own[module] = name, own
        self._listening = False
        self._calls: list[LayerRecord] = []
        self._waiting: list[LayerRecord] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record every call of the model's layers within the block, where gradients are enabled."""
        before = torch_module.register_module_forward_pre_hook(self._before)
        after = torch_module.register_module_forward_hook(self._after, always_call=True)
        self._listening = True
        try:
            yield
        finally:
            self._listening = False
            before.remove()
            after.remove()
            self._release()

    def take(self, rows: int, examples: int) -> list[tuple[LayerRecord, list[LayerUse]]]:
        """Return the uses of all layers since the last call, and forget their records.

        Parameters
        ----------
        rows : int
            How many rows the batch has.
        examples : int
            How many examples they belong to; each owns as many consecutive rows.
        """
        calls, self._calls = self._calls, []
        found = []
        # Layers without a shortcut are run again, which is not to be recorded.
        self._listening = False
        try:
            for record in calls:
                if record.gradients:  # otherwise the losses do not depend on it
                    _check_rows(record, rows)
                    found.append((record, layer_uses(record.module, record, examples)))
        finally:
            self._listening = True
        return found

    def forget(self) -> None:
        """Drop what was recorded."""
        self._calls.clear()

    def _before(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if not (self._listening and module in self._names and torch.is_grad_enabled()):
            return
        self._waiting.append(LayerRecord(self._names[module], module, arguments))
        for parameter in self._own[module]:
            parameter.requires_grad_(requires_grad=False)

    def _after(self, module: nn.Module, _arguments: Any, output: Any) -> Any:
        if not self._waiting or self._waiting[-1].module is not module:
            return output
        record = self._waiting.pop()
        self._unfreeze(module)
        if output is None:  # the layer raised
            return output
        self._calls.append(record)
        return _tapped(record, output)

    def _unfreeze(self, module: nn.Module) -> None:
        """Let a layer's parameters train again, unless a layer around it holds them too."""
        held = {id(part) for record in self._waiting for part in self._own[record.module]}
        for parameter in self._own[module]:
            if id(parameter) not in held:
                parameter.requires_grad_(requires_grad=True)

    def _release(self) -> None:
        """Let everything train again, also after an exception within a layer."""
        while self._waiting:
            self._unfreeze(self._waiting.pop().module)
        self._calls.clear()


def _tapped(record: LayerRecord, output: Any) -> Any:
    """Return a layer's output with every tensor in it tapped, numbered in their order."""
    count = 0

    def walk(part: Any) -> Any:
        nonlocal count
        if isinstance(part, Tensor):
            count += 1
            return record.tap(count - 1, part)
        if isinstance(part, tuple) and type(part) is tuple:
            return tuple(walk(member) for member in part)
        raise InvalidParameterError(
            f"layer {record.name!r} returns a {type(part).__name__}: only tensors and tuples of "
            "tensors can be followed; return those"
        )

    return walk(output)


def _check_rows(record: LayerRecord, rows: int) -> None:
    """Raise unless the first axis of a layer's input is the rows of the batch."""
    first = next((part for part in record.inputs if isinstance(part, Tensor)), None)
    if first is None or first.ndim == 0 or first.shape[0] != rows:
        shape = None if first is None else tuple(first.shape)
        raise ShapeError(
            f"layer {record.name!r} got an input of shape {shape}, but the batch has {rows} rows: keep "
            "the batch as the first axis of every layer's input, and pass it by position"
        )
