"""One call of a layer, kept until its gradients are formed."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import mha

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.settings import settings_of
from matrixdp.training.layers.table import has_shortcut
from matrixdp.training.layers.trees import detached, tensors_in

__all__ = ["LayerCall"]


class LayerCall:
    """One call of one layer: what went in, and as the backward pass goes on what comes back."""

    def __init__(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], *, whole: bool
    ) -> None:
        self.name = name
        self.module = module
        self.whole = whole  # with the layers inside it
        # As the layer is now: hooks may change it, and so may the user until it is measured.
        self.shortcut = not whole and has_shortcut(module)
        self.settings = settings_of(module)
        self.inputs: tuple[Any, ...] = detached(inputs)
        # Lists and dicts, which the layer may change, and what is in them.
        self.lent = [part for part in inputs if not isinstance(part, Tensor)]
        self.held = tensors_in(self.lent)
        self.by_name: tuple[str, ...] = ()  # of the last inputs
        self.versions = _versions(self.inputs)
        self.autocast = _autocast(self.inputs)
        self.half = bool(self.autocast._enabled)  # noqa: SLF001 - multiplies in 16 bits
        self.frozen: list[nn.Parameter] = []  # by this call
        self.untrained: list[nn.Parameter] = []  # by the user, for this call
        self.slowed = False  # whether this call switched off the fast path of attention
        self.outputs = 0  # how many tensors it returned
        self.tapped = 0  # how many of them can have a gradient
        self.copies: list[Tensor] = []  # of outputs that share their memory
        self.returned: dict[int, Tensor] = {}  # copies, where the layer will be run again
        self.gradients: dict[int, Tensor] = {}
        self.gradient_versions: dict[int, int] = {}
        self.over = False  # whether the batch that it belongs to is over

    def freeze(self, parameters: Iterable[nn.Parameter]) -> None:
        """Let autograd pass the layer's parameters by while it runs."""
        for parameter in parameters:
            # Not what a layer around this one froze, nor what the user did: that stays as it is.
            if parameter.requires_grad:
                self.frozen.append(parameter)  # first, in case of an interrupt
                parameter.requires_grad_(False)  # noqa: FBT003
        # With nothing to train, attention in eval() would take a path that it does not take in
        # plain training, and that computes other things where a mask leaves nothing.
        self.slowed = mha.get_fastpath_enabled()
        mha.set_fastpath_enabled(False)

    def unfreeze(self) -> None:
        """Let the parameters train again that this call froze."""
        for parameter in self.frozen:
            parameter.requires_grad_(True)  # noqa: FBT003
        if self.slowed:
            mha.set_fastpath_enabled(True)

    def check_settings(self) -> None:
        """Raise if the layer is no longer what it was when it was called.

        Raises
        ------
        InvalidParameterError
            Which names the layer: its gradients would be those of another one.
        """
        if settings_of(self.module) != self.settings:
            raise InvalidParameterError(
                f"layer {self.name!r} was changed after it was called: a setting such as its "
                "padding, a hook on its input, or its forward pass. Use one layer for each way of "
                "calling it, which may share their parameters, or mode='exact'"
            )
        if any(part.requires_grad for part in self.untrained):
            raise InvalidParameterError(
                f"a part of the parameters of layer {self.name!r} was frozen when it was called, "
                "and is trained now: freeze all of the layer for such a call, or use mode='exact'"
            )

    def check_unchanged(self) -> None:
        """Raise if a tensor was changed in place since the layer was called, and may not be."""
        # torch would find this out itself, were the layer's own gradients left to it.
        if _versions(self.inputs) != self.versions:
            raise InvalidParameterError(
                f"an input of layer {self.name!r} was changed in place after the layer used it, so "
                "that its gradient is lost: change a copy"
            )
        if any(
            part._version != self.gradient_versions[place]  # noqa: SLF001
            for place, part in self.gradients.items()
        ):
            raise InvalidParameterError(
                f"a gradient of layer {self.name!r} was changed in place by a backward function: "
                "let it return a new tensor"
            )
        if any(_versions(self.copies)):
            raise InvalidParameterError(
                f"an output of layer {self.name!r} was changed in place, and shares its memory "
                "with another output, an input or a parameter: return a copy of it, by clone()"
            )

    def take_gradient(self, place: int, gradient: Tensor) -> None:
        """Hold the gradient of an output."""
        self.gradients[place] = gradient
        self.gradient_versions[place] = gradient._version  # noqa: SLF001

    def forget(self) -> None:
        """Let go of everything that is as large as the batch."""
        self.inputs, self.copies, self.gradients, self.returned = (), [], {}, {}

    def check_arguments(self) -> None:
        """Raise if the layer put something into a list or a dict that it was given.

        Raises
        ------
        InvalidParameterError
            Which names the layer: what it did not return cannot be followed.
        """
        before, after = ([*map(id, parts)] for parts in (self.held, tensors_in(self.lent)))
        self.lent, self.held = [], []
        if before != after:
            raise InvalidParameterError(
                f"layer {self.name!r} changes a list or a dict that it is given, and what it does "
                "not return cannot be followed: let it return all that it makes"
            )

    def take_by_name(self, named: Mapping[str, Any]) -> None:
        """Hold the arguments by name, too, in the layer's own order; torch passes them on later.

        What was held by position is what the layer got before its own hooks, which run again when
        the layer does. They leave arguments by name as they are, unless they take them as well.

        Raises
        ------
        InvalidParameterError
            If a hook may have changed these arguments already.
        """
        if self.module._forward_pre_hooks_with_kwargs:  # noqa: SLF001
            raise InvalidParameterError(
                f"layer {self.name!r} takes {', '.join(named)} by name, and has a hook that may "
                "change them (with_kwargs=True): pass them by position, or remove the hook"
            )
        for name, part in named.items():
            if isinstance(part, list | dict) and tensors_in(part):
                # Before the call nobody could look, so what the layer has put there is not known.
                raise InvalidParameterError(
                    f"layer {self.name!r} takes a {type(part).__name__} of tensors by name, "
                    f"{name}: pass it by position, or as a tuple"
                )
        order = list(inspect.signature(self.module.forward).parameters)
        known = [name for name in order if name in named]
        self.by_name = (*known, *(name for name in named if name not in known))
        added = detached(tuple(named[name] for name in self.by_name))
        self.inputs += added
        self.versions += _versions(added)
        self.autocast = _autocast(self.inputs)
        self.half = bool(self.autocast._enabled)  # noqa: SLF001

    def shares(self, output: Tensor) -> bool:
        """Return whether an output is also something else, and is not to be marked as changed.

        That is an input, a parameter, or what the output is a view of.
        """
        if output._is_view() or isinstance(output, nn.Parameter):  # noqa: SLF001
            return True
        place = output.data_ptr()
        return any(part.data_ptr() == place for part in tensors_in(self.inputs))


def _autocast(inputs: tuple[Any, ...]) -> torch.autocast:
    """Return the autocast that is on, so that the layer can be run under it once more."""
    device = next((part.device.type for part in tensors_in(inputs)), "cpu")
    on = torch.is_autocast_enabled(device)
    # Without the cache: it would hold casts of parameters that only the second run knows.
    return torch.autocast(
        device, dtype=torch.get_autocast_dtype(device), enabled=on, cache_enabled=False
    )


def _versions(parts: Sequence[Any]) -> list[int]:
    return [part._version for part in tensors_in(parts)]  # noqa: SLF001
