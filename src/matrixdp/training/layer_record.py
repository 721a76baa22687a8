"""What is kept of one call of a layer until its gradients are formed."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError

__all__ = ["LayerRecord"]


class LayerRecord:
    """One call of one layer: what went in, and as the backward pass goes on what comes back."""

    def __init__(
        self, name: str, module: nn.Module, inputs: tuple[Any, ...], *, whole: bool
    ) -> None:
        self.name = name
        self.module = module
        self.whole = whole  # with the layers inside it
        self.inputs = _detached(inputs)
        self.by_name: tuple[str, ...] = ()  # of the last inputs
        self.versions = _versions(self.inputs)
        self.autocast = _autocast(self.inputs)
        self.frozen: list[nn.Parameter] = []  # by this call
        self.outputs = 0
        self.gradients: dict[int, Tensor] = {}
        self.over = False  # whether the batch that it belongs to is over

    def check_inputs(self) -> None:
        """Raise if an input was changed in place since the layer was called."""
        # torch would find this out itself, were the layer's own gradients left to it.
        if _versions(self.inputs) != self.versions:
            raise InvalidParameterError(
                f"an input of layer {self.name!r} was changed in place after the layer used it, so "
                "that its gradient is lost: change a copy"
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
        order = list(inspect.signature(self.module.forward).parameters)
        known = [name for name in order if name in named]
        self.by_name = (*known, *(name for name in named if name not in known))
        added = _detached(tuple(named[name] for name in self.by_name))
        self.inputs += added
        self.versions += _versions(added)
        self.autocast = _autocast(self.inputs)

    def shares(self, output: Tensor) -> bool:
        """Return whether an output is also something else, and is not to be marked as changed.

        That is an input, a parameter, or what the output is a view of.
        """
        if output._is_view() or isinstance(output, nn.Parameter):  # noqa: SLF001
            return True
        place = output.data_ptr()
        return any(isinstance(part, Tensor) and part.data_ptr() == place for part in self.inputs)


def _detached(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return tensors without their past, also those in tuples, such as states."""
    parts = (_detached(part) if type(part) is tuple else part for part in inputs)
    return tuple(part.detach() if isinstance(part, Tensor) else part for part in parts)


def _tensors(inputs: tuple[Any, ...]) -> Iterator[Tensor]:
    """Go through all tensors, also those in tuples."""
    for part in inputs:
        if isinstance(part, Tensor):
            yield part
        elif type(part) is tuple:
            yield from _tensors(part)


def _autocast(inputs: tuple[Any, ...]) -> torch.autocast:
    """Return the autocast that is on, so that the layer can be run under it once more."""
    device = next((part.device.type for part in inputs if isinstance(part, Tensor)), "cpu")
    on = torch.is_autocast_enabled(device)
    # Without the cache: it would hold casts of parameters that only the second run knows.
    return torch.autocast(
        device, dtype=torch.get_autocast_dtype(device), enabled=on, cache_enabled=False
    )


def _versions(inputs: tuple[Any, ...]) -> list[int]:
    return [part._version for part in _tensors(inputs)]  # noqa: SLF001
