"""Watching a model run: the inputs of its layers, and the gradients of their outputs.

While a recording is on, no layer's parameters take part in the backward pass: it only computes the
gradients of the activations, which is what per-example gradients are made of. Nothing is stored in
the model: hooks are global and know the modules, so that its class, its ``state_dict`` and its
pickles stay what they are.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

from matrixdp.errors import InvalidParameterError
from matrixdp.training.held import HeldTensors
from matrixdp.training.layer_call import LayerCall
from matrixdp.training.layers.batch_statistics import NormalisingCall, uses_batch_statistics
from matrixdp.training.layers.fallback import is_known
from matrixdp.training.layers.precision import without_autocast
from matrixdp.training.layers.rows import check_rows, may_mix_rows
from matrixdp.training.layers.same_run import copied_outputs
from matrixdp.training.layers.table import check_layer, layer_uses
from matrixdp.training.layers.use import KeptGradients, LayerUse, NormBounds
from matrixdp.training.layers.whole import check_no_cache, is_whole
from matrixdp.training.leaves import without_gradients
from matrixdp.training.mixing import MixingCalls
from matrixdp.training.tapping import tapped

__all__ = ["MeasuredUse", "Recording", "stop_watching"]


class MeasuredUse(NamedTuple):
    """The use of a layer's parameters, and bounds of the norms of every example's gradient.

    There are no bounds where a parameter has other uses too, whose gradients are to be added first.
    """

    name: str
    use: LayerUse
    norm_bounds: dict[nn.Parameter, NormBounds] | None


# Recordings that are on. An exception within a layer leaves one on as long as somebody holds the
# batches, for instance a progress bar in a notebook.
_WATCHING: "weakref.WeakSet[Recording]" = weakref.WeakSet()


def stop_watching(model: nn.Module) -> None:
    """Stop what still watches a model, so that a new training finds all of its parameters."""
    for recording in list(_WATCHING):
        if recording.watches(model):
            recording.stop()


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
        stop_watching(model)
        self._names: dict[nn.Module, str] = {}
        self._own: dict[nn.Module, tuple[nn.Parameter, ...]] = {}
        self._mixing = MixingCalls(model)
        self._whole = {module for module in model.modules() if is_whole(module)}
        for name, module in model.named_modules():
            # By every name that it has: a parameter with two of them has two uses in each call.
            named = module.named_parameters(recurse=module in self._whole, remove_duplicate=False)
            own = tuple(part for _, part in named if part.requires_grad)
            check_layer(module, name)
            if own:
                self._names[module], self._own[module] = name, own
        self._trained = {part for own in self._own.values() for part in own}
        self._listening = False
        self._thread = 0  # the one that the model is watched in
        self._measuring = False  # whether `backward` is running
        self._going_back = False  # whether a backward pass is under way
        self._pass = -1  # torch's number of it
        self._calls: list[LayerCall] = []
        self._waiting: list[LayerCall] = []
        self._measured: list[MeasuredUse] = []
        self._held = HeldTensors()
        self._shared: set[nn.Parameter] = set()
        self._rows = self._examples = 0
        self.half = False  # whether the last backward pass had gradients of 16 bits

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record every call of the model's layers within the block, where gradients are enabled."""
        hooks: list[RemovableHandle] = []
        try:
            hooks.append(torch_module.register_module_forward_pre_hook(self._before))
            hooks.append(
                torch_module.register_module_forward_hook(
                    self._after, with_kwargs=True, always_call=True
                )
            )
            self._listening, self._thread = True, threading.get_ident()
            _WATCHING.add(self)
            yield
        finally:
            try:
                self._end(hooks)
            finally:
                self._end(hooks)  # once more, should the first be interrupted

    def _end(self, hooks: Iterable[RemovableHandle]) -> None:
        self.stop()
        for hook in hooks:
            hook.remove()

    def stop(self) -> None:
        """Follow the model no longer, and let everything train again."""
        self._listening = False
        self._release()
        _WATCHING.discard(self)  # last: after an interrupt the next training can still find it

    def watches(self, model: nn.Module) -> bool:
        """Return whether this records a part of a model."""
        return not self._names.keys().isdisjoint(model.modules())

    def backward(self, losses: Tensor, rows: int, examples: int) -> list[MeasuredUse]:
        """Run the backward pass; return the uses of all layers since the last one.

        Norms are taken as soon as a layer's gradient is there, so that what is not needed for the
        sums can be let go.

        Parameters
        ----------
        losses : Tensor
            The losses of all examples, added up or not.
        rows : int
            How many rows the batch has.
        examples : int
            How many examples they belong to; each owns as many consecutive rows.
        """
        if self._waiting:
            raise InvalidParameterError(
                f"losses are accumulated within the forward pass of layer "
                f"{self._waiting[-1].name!r}, whose own parameters are not to be trained as long "
                "as it runs: let it return them, and call training.accumulate(losses) afterwards"
            )
        counted = Counter(part for call in self._calls for part in self._own[call.module])
        self._shared = {part for part, number in counted.items() if number > 1}
        self._rows, self._examples = rows, examples
        self.half = False
        # Layers without a shortcut are run again, which is not to be recorded.
        self._listening, self._going_back, self._measuring = False, True, True
        try:
            with without_autocast(self._trained):
                total = losses.sum()
                total.register_hook(self._entered)
                trained = self._trained_now()
                with without_gradients(total, self._trained, (rows, examples)):
                    total.backward()
                for call in self._calls:
                    self._measure(call)
            self._mixing.check(rows)
            self._held.check_unchanged()
            if self._trained_now() != trained:
                # Sums would have parameters that norms had not.
                raise InvalidParameterError(
                    "a parameter was frozen or unfrozen by a hook during the backward pass: do it "
                    "outside of it"
                )
            return self._measured
        finally:
            self._listening, self._going_back, self._measuring = True, False, False
            self._forget()

    def _trained_now(self) -> list[bool]:
        return [part.requires_grad for part in self._trained]

    def _entered(self, _gradient: Tensor) -> None:
        self._pass = torch._C._current_graph_task_id()  # noqa: SLF001

    def _arrived(self, call: LayerCall, place: int, gradient: Tensor | None) -> None:
        if not self._measuring:
            _check_own_pass(call)
            return
        if call.over:
            raise InvalidParameterError(
                f"losses depend on a call of layer {call.name!r} from before this batch, whose "
                "records are not those of this one: run the model on this batch alone, and detach "
                "what is carried over"
            )
        if torch._C._current_graph_task_id() != self._pass:  # noqa: SLF001
            raise InvalidParameterError(
                f"a hook or a backward function asks for gradients through layer {call.name!r} "
                "within the backward pass, and these cannot be told from those of the losses: "
                "compute them in the forward pass, or use mode='exact'"
            )
        if gradient is None:
            return  # As cuDNN has it for an output that no loss depends on.
        # The smallest numbers of float16 have a single bit: a share of one of them is rounded to
        # nothing or to all of it, and scaled in 16 bits, a gradient could stay as large as it was.
        gradient = gradient.float() if gradient.dtype == torch.float16 else gradient
        call.take_gradient(place, gradient)
        self.half = self.half or gradient.element_size() < 4
        if call.tapped == 1:
            self._measure(call)

    def _measure(self, call: LayerCall) -> None:
        """Turn a call into uses, once."""
        if not call.gradients:
            if call.inputs and may_mix_rows(call.module):
                # Nothing comes back, and yet what went in may have been mixed.
                self._mixing.add(call.module, call.inputs)
            return
        call.check_unchanged()
        call.check_settings()
        check_rows(call.module, call.name, call.inputs, call.gradients, self._rows)
        for use in self._uses(call):
            shared = not self._shared.isdisjoint(use.parameters)
            if shared and isinstance(use, KeptGradients) and self._joined(call.name, use):
                continue
            bounds = None if shared else use.norm_bounds()
            self._held.add(call.name, use)
            self._measured.append(MeasuredUse(call.name, use, bounds))
        call.forget()

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

    def _uses(self, call: LayerCall) -> list[LayerUse]:
        # A layer without a shortcut is run again, which is not activation checkpointing.
        former, self._going_back = self._going_back, False
        try:
            return layer_uses(call.module, call, self._examples)
        finally:
            self._going_back = former

    def _before(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self._going_back and module in self._names and torch.is_grad_enabled():
            # Its parameters would not be frozen as in the forward pass, and torch might put the
            # tensors that it saves now in the places of others.
            raise InvalidParameterError(
                f"layer {self._names[module]!r} is called during the backward pass, which "
                "activation checkpointing does: leave it out, and use smaller batches"
            )
        if not self._listening:
            return
        is_own = self._is_own_thread()
        if uses_batch_statistics(module):
            self._mixing.add_normalising(NormalisingCall.of(module, arguments, is_own=is_own))
        if not (is_own and module in self._names and torch.is_grad_enabled()):
            return  # Another thread runs the same model, and not for the losses of this batch.
        inside = self._waiting[-1] if self._waiting and self._waiting[-1].whole else None
        if inside is not None and inside.module is not module:
            return  # What is inside a layer that is recorded as a whole belongs to its call.
        self._check_call(module)
        own = self._own[module]
        call = LayerCall(self._names[module], module, arguments, whole=module in self._whole)
        self._waiting.append(call)
        call.freeze(own)
        if len(call.frozen) < len(own):
            call.untrained = self._frozen_by_the_user(own)
            if len(call.untrained) == len(own):
                # As a critic is that only passes gradients on to what it judges.
                call.unfreeze()
                self._waiting.pop()

    def _frozen_by_the_user(self, own: tuple[nn.Parameter, ...]) -> list[nn.Parameter]:
        """Return those of a layer's parameters that neither it nor a layer around it froze."""
        frozen = {part for call in self._waiting for part in call.frozen}
        return [part for part in own if part not in frozen]

    def _is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def _check_call(self, module: nn.Module) -> None:
        """Raise if the gradients of this call are not what its parameters would get from torch."""
        name = self._names[module]
        if any(call.module is module for call in self._waiting):
            raise InvalidParameterError(
                f"layer {name!r} calls itself, so that its gradients would count twice: call it "
                "in a loop from outside, or use mode='exact'"
            )
        check_no_cache(module, name, whole=module in self._whole)
        present = set(module.parameters(recurse=module in self._whole))
        if not present.issuperset(self._own[module]):
            raise InvalidParameterError(
                f"layer {name!r} was called with other tensors in the places of its parameters, as "
                "torch.func.functional_call does: call the layer itself, other weights under "
                "torch.no_grad(), or use mode='exact'"
            )
        if forward_ad._current_level >= 0:  # noqa: SLF001
            raise InvalidParameterError(
                f"layer {name!r} is called within forward_ad.dual_level(), and gradients through "
                "tangents cannot be followed: leave the block, or use mode='exact'"
            )
        if any(
            part._backward_hooks or part._post_accumulate_grad_hooks  # noqa: SLF001
            for part in self._own[module]
        ):
            raise InvalidParameterError(
                f"a parameter of layer {name!r} has a hook for its gradient, which is never "
                "called, since gradients are not made by torch here: remove it, or use "
                "mode='exact', which calls it before clipping"
            )

    def _after(self, module: nn.Module, arguments: tuple[Any, ...], *rest: Any) -> Any:
        # Arguments by name, and the output. If the layer raised, torch leaves out the former.
        *named, output = rest
        if not self._is_own_thread():
            return output
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.module is not module:
            if self._listening and may_mix_rows(module):
                self._mixing.add(module, arguments, *named)
            return output
        call = last
        try:
            if output is None:  # the layer raised
                return output
            call.check_arguments()
            if any(named):
                call.take_by_name(*named)
            self._calls.append(call)
            if not call.shortcut and not is_known(module):
                # To be compared. Layers of torch's own are known to treat every row by itself, and
                # may be run in another type.
                call.returned = copied_outputs(output)
            # Before its parameters train again: a view of one would then seem to need a gradient,
            # and autograd would pass it by.
            return tapped(call, output, partial(self._arrived, call))
        finally:
            # In this order: what an interrupt leaves waiting is let go of when the batch is over.
            call.unfreeze()
            self._waiting.pop()

    def _release(self) -> None:
        """Let everything train again, also after an exception within a layer."""
        while self._waiting:
            self._waiting[-1].unfreeze()
            self._waiting.pop()
        self._forget()

    def _forget(self) -> None:
        """Let nothing of a batch enter the next one."""
        for call in self._calls:
            call.over = True
        # Not cleared in place: the uses may just have been returned.
        self._calls, self._measured = [], []
        self._mixing.forget()
        self._held = HeldTensors()
        self._shared = set()
        self._rows = self._examples = 0


def _check_own_pass(call: LayerCall) -> None:
    """Raise if a gradient pass of the user's own is to be differentiated once more.

    Any other one, for instance for adversarial inputs, leaves the recorded calls as they are. But
    parameters take no part in a pass while they are recorded, so that a loss made of gradients,
    such as a gradient penalty, would not reach them.
    """
    # Only then does torch enable gradients during a backward pass.
    if torch.is_grad_enabled() and not call.over:
        raise InvalidParameterError(
            f"gradients through layer {call.name!r} were asked for with create_graph=True, and "
            "losses that are made of gradients cannot be followed: leave create_graph out, or use "
            "mode='exact'"
        )
