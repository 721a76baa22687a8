"""Tracing one call of the losses: the inputs of layers, and the gradients of their outputs.

The backward pass computes the gradients of activations only, which is what the gradients of single
records are made of. Hooks exist only while the losses are computed, and nothing else is stored in
the model.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.layers.call import LayerCall, TracedLayer
from matrixdp.training.layers.expanded import Expansion
from matrixdp.training.layers.hooks import hooked
from matrixdp.training.layers.known import Known
from matrixdp.training.layers.own_weights import expanded_weights, uses_own_weights
from matrixdp.training.layers.precision import without_autocast
from matrixdp.training.layers.table import has_rule, layer_uses, runs_plainly
from matrixdp.training.layers.tap import ROOT, Arrived, tapped
from matrixdp.training.layers.tied import with_tied
from matrixdp.training.layers.use import KeptGradients, LayerUse, MeasuredUse

__all__ = ["Tracer", "traced_layers"]


class _Held(NamedTuple):
    """A tensor that is held between norm and sum, and how often it had been changed in place."""

    name: str
    tensor: Tensor
    version: int


class Tracer:
    """The layers of a model that have parameters to train, and their calls in one batch.

    Parameters
    ----------
    model : nn.Module
        Any module.
    trained : collection of Parameter
        The parameters that are trained.
    shared : mapping of str to tuple of bool, optional
        The calls of layers that return something without rows. Only if it is given, and be it
        empty, are weights of layers expanded.

    Attributes
    ----------
    known : Known
        What every batch is held to.
    half : bool
        Whether the last backward pass had gradients of 16 bits.
    """

    def __init__(
        self,
        model: nn.Module,
        trained: Collection[nn.Parameter],
        shared: Mapping[str, tuple[bool, ...]] | None = None,
    ) -> None:
        self.known = Known()
        if shared is not None:
            self.known.shared = dict(shared)
            self.known.expanded = {
                name
                for name, module in model.named_modules()
                if not has_rule(module) and uses_own_weights(module)
            }
        self.half = False
        self._model = model
        self._trained = trained
        self._thread = 0  # the one that the losses are computed in
        self._listening = False
        self._measuring = False
        self._calls: list[LayerCall] = []
        self._numbers: Counter[str] = Counter()  # of calls, with those that are not traced
        self._measured: list[MeasuredUse] = []
        self._held: list[_Held] = []
        self._shared: set[nn.Parameter] = set()
        self._examples = 0
        self._expansion = Expansion(0, self.known)
        self._arrived_weights: set[tuple[str, str]] = set()

    @cached_property
    def layers(self) -> list[TracedLayer]:
        """The layers that are traced, and those whose weights are expanded."""
        return traced_layers(self._model, self.known.expanded)

    @contextmanager
    def on(self, rows: int = 0) -> Iterator[None]:
        """Trace every call of the model's layers within the block, where gradients are enabled.

        Parameters
        ----------
        rows : int, optional
            How many rows the batch has, which weights of layers are expanded to.
        """
        layers = self.layers
        hooks = [
            (layer.module, partial(self._called, layer)) for layer in layers if not layer.expanded
        ]
        own = [layer for layer in layers if layer.expanded]
        self._expansion = Expansion(rows, self.known)
        try:
            # First of all hooks: a gradient is that of what the forward pass itself returned.
            with hooked(hooks), expanded_weights(own, self._expansion, self._weight_arrived):
                self._thread, self._listening = threading.get_ident(), True
                yield
        finally:
            self._expansion.on = self._listening = False
            self._calls = []
            self._numbers.clear()
            self._arrived_weights.clear()

    def unexpand(self, layers: Collection[str]) -> bool:
        """Run some layers again for each record instead; return whether any were expanded."""
        found = self.known.expanded & set(layers)
        self.known.expanded -= found
        vars(self).pop("layers", None)
        return bool(found)

    def uses(self, losses: Tensor, examples: int) -> list[MeasuredUse]:
        """Run the backward pass; return the uses of all layers.

        Norms are taken as soon as a layer's gradient is there, so that what is not needed for the
        sums can be let go.

        Parameters
        ----------
        losses : Tensor
            The losses of all examples.
        examples : int
            How many there are; each owns as many consecutive rows.
        """
        for layer in self.layers:
            shared = () if layer.expanded else self.known.shared.get(layer.name, ())
            if shared and self._numbers[layer.name] != len(shared):
                raise ShapeError(f"layer {layer.name!r} has other calls than when it was checked")
        used = [layer for layer in self.layers if layer.name in self._expansion.used]
        layers = [*(call.layer for call in self._calls), *(one for one in used if one.expanded)]
        counted = Counter(parameter for layer in layers for parameter in layer.parameters)
        self._shared = {parameter for parameter, number in counted.items() if number > 1}
        self._examples, self.half = examples, False
        # A layer without a rule is run again, which is not to be traced.
        self._listening, self._measuring = False, True
        try:
            with without_autocast(self._trained):
                torch.autograd.grad(losses.sum(), [ROOT], allow_unused=True)
                for call in self._calls:
                    self._measure(call)
            for name, tensor, version in self._held:
                if tensor._version != version:  # noqa: SLF001
                    raise InvalidParameterError(
                        f"an input or a gradient of layer {name!r} was changed in place during the "
                        "backward pass, after its norm was taken: let hooks and backward functions "
                        "return new tensors"
                    )
            return with_tied(self._measured, self._shared)
        finally:
            self._measuring = False
            self._measured, self._held = [], []

    def _called(
        self, layer: TracedLayer, _module: nn.Module, arguments: Any, named: Any, output: Any
    ) -> Any:
        own_thread = threading.get_ident() == self._thread
        if not (self._listening and own_thread):
            return None  # another thread runs the same model, and not for these losses
        number = self._numbers[layer.name]
        self._numbers[layer.name] += 1
        trained = any(parameter.requires_grad for parameter in layer.parameters)
        if not (trained and torch.is_grad_enabled()):
            return None  # frozen for this call
        call = LayerCall(layer, arguments, named)
        arrived = partial(self._arrived, call)
        if self.known.shared.get(layer.name, ())[number : number + 1] == (True,):
            return self._expanded(call, output, arrived)
        output, call.outputs, call.tapped = tapped(output, arrived)
        if call.tapped:
            self._calls.append(call)
        return output

    def _expanded(self, call: LayerCall, output: Any, arrived: Arrived) -> Any:
        """Return what a layer made for all rows at once, with a gradient for each of them."""
        if type(output) is not Tensor:
            raise ShapeError(f"layer {call.layer.name!r} returns no single tensor without rows")
        if not output.requires_grad:
            return None
        call.outputs = call.tapped = 1
        call.copies = self._expansion.rows
        self._calls.append(call)
        return self._expansion.expanded(output, call.layer.name, arrived)

    def _weight_arrived(
        self, layer: TracedLayer, name: str, parameter: nn.Parameter, _index: int, gradient: Tensor
    ) -> None:
        if not self._measuring:
            return
        if (layer.name, name) in self._arrived_weights:
            raise InvalidParameterError(_asked_within(layer))
        self._arrived_weights.add((layer.name, name))
        self.half = self.half or gradient.element_size() < 4
        by_row = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        by_example = by_row.unflatten(0, (self._examples, -1)).sum(1)
        self._add(layer.name, KeptGradients({parameter: by_example}))

    def _arrived(self, call: LayerCall, index: int, gradient: Tensor) -> None:
        if not self._measuring:
            return  # a gradient that the losses are made of
        if index in call.gradients or call.measured:
            raise InvalidParameterError(_asked_within(call.layer))
        # The smallest numbers of float16 have a single bit: a share of one of them is rounded to
        # nothing or to all of it, and scaled in 16 bits, a gradient could stay as large as it was.
        gradient = gradient.float() if gradient.dtype == torch.float16 else gradient
        call.gradients[index] = gradient
        self.half = self.half or gradient.element_size() < 4
        if call.tapped == 1:
            self._measure(call)

    def _measure(self, call: LayerCall) -> None:
        """Turn a call into uses, once."""
        if not call.gradients:
            return
        call.check_unchanged()
        if not call.copies:
            self._check_rows(call)
        self._expansion.on = False  # layers may be run again, as they are
        try:
            uses = layer_uses(call, self._examples)
        finally:
            self._expansion.on = True
        for use in uses:
            self._add(call.layer.name, use)
        call.forget()

    def _add(self, name: str, use: LayerUse) -> None:
        """Add a use, with bounds of its norms unless its parameters have others, too."""
        shared = not self._shared.isdisjoint(use.parameters)
        if shared and isinstance(use, KeptGradients) and self._joined(name, use):
            return
        bounds = None if shared else use.norm_bounds()
        self._held += [
            _Held(name, tensor, tensor._version)  # noqa: SLF001
            for tensor in vars(use).values()
            if isinstance(tensor, Tensor)
        ]
        self._measured.append(MeasuredUse(name, use, bounds))

    def _check_rows(self, call: LayerCall) -> None:
        """Raise if a layer has rows whose owners are not known.

        A layer that is called for some of the rows alone, as experts are, may have as many as would
        belong to all examples.
        """
        first = call.inputs[0] if call.inputs else None
        axes = 0 if first is None else first.ndim
        # A selection of positions may have as many rows as the batch, but has an axis less.
        rows = Fraction(len(first) if first is not None and axes else 0, self._examples), axes
        seen = self.known.rows.setdefault(call.layer.name, set())
        if not self.known.complete:
            seen.add(rows)
        elif rows not in seen:
            raise ShapeError(
                f"layer {call.layer.name!r} has other rows for an example than when it was checked"
            )

    def _joined(self, name: str, use: KeptGradients) -> bool:
        """Add gradients to those of another call of the same layer, if there are any.

        A cell is called once for each step in time, and gradients of each would fill the memory.
        """
        for other in self._measured:
            joins = other.name == name and other.norm_bounds is None
            if joins and isinstance(other.use, KeptGradients):
                other.use.add(use)
                return True
        return False


def _asked_within(layer: TracedLayer) -> str:
    return (
        f"a hook or a backward function asks for gradients through layer {layer.name!r} within "
        "the backward pass: compute them in the losses"
    )


def traced_layers(model: nn.Module, expanded: Collection[str] = ()) -> list[TracedLayer]:
    """Return the layers that have parameters to train, without those inside a whole layer.

    Parameters
    ----------
    model : nn.Module
        Any module.
    expanded : collection of str
        The layers whose own weights are expanded.
    """
    found: list[TracedLayer] = []
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in inside:
            continue
        whole = name not in expanded and _is_whole(module)
        if whole:
            inside.update(module.modules())
        # By every name that it has: a parameter with two of them has two uses in each call.
        named = module.named_parameters(recurse=whole, remove_duplicate=False)
        own = tuple(parameter for _, parameter in named if parameter.requires_grad)
        if own:
            found.append(TracedLayer(name, module, own, whole, name in expanded))
    return found


def _is_whole(module: nn.Module) -> bool:
    """Return whether a layer is traced as one, with the parameters of all layers inside it.

    These use parameters without calling the layers that hold them, as attention does with its
    output projection, or may do so.
    """
    if has_rule(module):
        return False
    own = set(module.parameters(recurse=False))
    return (
        runs_plainly(module, nn.MultiheadAttention)
        or is_parametrized(module)
        # By which of its names a parameter is used cannot be told while both layers run.
        or any(
            not own.isdisjoint(inner.parameters(recurse=False))
            for inner in module.modules()
            if inner is not module
        )
    )
