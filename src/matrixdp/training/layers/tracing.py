"""Tracing one call of the losses: the inputs of layers, and the gradients of their outputs.

The backward pass computes the gradients of activations only, which is what the gradients of single
records are made of. Hooks exist only while the losses are computed, and nothing else is stored in
the model.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers.call import LayerCall, TracedLayer
from matrixdp.training.layers.hooks import hooked
from matrixdp.training.layers.precision import without_autocast
from matrixdp.training.layers.table import has_rule, layer_uses, runs_plainly
from matrixdp.training.layers.tap import ROOT, tapped
from matrixdp.training.layers.use import KeptGradients, LayerUse

__all__ = ["MeasuredUse", "Tracer", "traced_layers"]


class MeasuredUse(NamedTuple):
    """The use of a layer's parameters, and bounds of the norms of every example's gradient.

    There are no bounds where a parameter has other uses too, whose gradients are to be added first.
    """

    name: str
    use: LayerUse
    norm_bounds: dict[nn.Parameter, NormBounds] | None


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

    Attributes
    ----------
    rows : dict of str to set of Fraction
        How many rows for each example a layer was seen with.
    learns : bool
        Whether layers may have other numbers of rows than were seen.
    """

    def __init__(self, model: nn.Module, trained: Collection[nn.Parameter]) -> None:
        self.layers = traced_layers(model)
        self.rows: dict[str, set[Fraction]] = {}
        self.learns = True
        self._trained = trained
        self._thread = 0  # the one that the losses are computed in
        self._listening = False
        self._measuring = False
        self._calls: list[LayerCall] = []
        self._measured: list[MeasuredUse] = []
        self._held: list[_Held] = []
        self._shared: set[nn.Parameter] = set()
        self._examples = 0
        self.half = False  # whether the last backward pass had gradients of 16 bits

    @contextmanager
    def on(self) -> Iterator[None]:
        """Trace every call of the model's layers within the block, where gradients are enabled."""
        hooks = [(layer.module, partial(self._called, layer)) for layer in self.layers]
        try:
            # First of all hooks: a gradient is that of what the forward pass itself returned.
            with hooked(hooks):
                self._thread, self._listening = threading.get_ident(), True
                yield
        finally:
            self._listening = False
            self._calls = []

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
        counted = Counter(parameter for call in self._calls for parameter in call.layer.parameters)
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
            return self._measured
        finally:
            self._measuring = False
            self._measured, self._held = [], []

    def _called(
        self, layer: TracedLayer, _module: nn.Module, arguments: Any, named: Any, output: Any
    ) -> Any:
        own_thread = threading.get_ident() == self._thread
        if not (self._listening and own_thread and torch.is_grad_enabled()):
            return None  # another thread runs the same model, and not for these losses
        if not any(parameter.requires_grad for parameter in layer.parameters):
            return None  # frozen for this call
        call = LayerCall(layer, arguments, named)
        output, call.outputs, call.tapped = tapped(output, partial(self._arrived, call))
        if call.tapped:
            self._calls.append(call)
        return output

    def _arrived(self, call: LayerCall, index: int, gradient: Tensor) -> None:
        if not self._measuring:
            return  # a gradient that the losses are made of
        if index in call.gradients or call.measured:
            raise InvalidParameterError(
                f"a hook or a backward function asks for gradients through layer "
                f"{call.layer.name!r} within the backward pass: compute them in the losses"
            )
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
        name = call.layer.name
        self._check_rows(call)
        for use in layer_uses(call, self._examples):
            shared = not self._shared.isdisjoint(use.parameters)
            if shared and isinstance(use, KeptGradients) and self._joined(name, use):
                continue
            bounds = None if shared else use.norm_bounds()
            self._held += [
                _Held(name, tensor, tensor._version)  # noqa: SLF001
                for tensor in vars(use).values()
                if isinstance(tensor, Tensor)
            ]
            self._measured.append(MeasuredUse(name, use, bounds))
        call.forget()

    def _check_rows(self, call: LayerCall) -> None:
        """Raise if a layer has rows whose owners are not known.

        A layer that is called for some of the rows alone, as experts are, may have as many as would
        belong to all examples.
        """
        first = call.inputs[0] if call.inputs else None
        rows = Fraction(len(first) if first is not None and first.ndim else 0, self._examples)
        seen = self.rows.setdefault(call.layer.name, set())
        if self.learns:
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


def traced_layers(model: nn.Module) -> list[TracedLayer]:
    """Return the layers that have parameters to train, without those inside a whole layer."""
    found: list[TracedLayer] = []
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in inside:
            continue
        whole = _is_whole(module)
        if whole:
            inside.update(module.modules())
        # By every name that it has: a parameter with two of them has two uses in each call.
        named = module.named_parameters(recurse=whole, remove_duplicate=False)
        own = tuple(parameter for _, parameter in named if parameter.requires_grad)
        if own:
            found.append(TracedLayer(name, module, own, whole))
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
