"""One call of a layer, kept until its gradients are formed."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.trees import detached, tensors_in

__all__ = ["LayerCall", "TracedLayer"]


class TracedLayer(NamedTuple):
    """A layer that is traced.

    Attributes
    ----------
    name : str
        Of the layer in its model.
    module : nn.Module
        The layer.
    parameters : tuple of Parameter
        Those whose gradients its calls account for, by every name that they have in it.
    whole : bool
        Whether the layers inside it are part of its calls.
    expanded : bool
        Whether its own weights are expanded to all rows, and its calls need not be traced.
    """

    name: str
    module: nn.Module
    parameters: tuple[nn.Parameter, ...]
    whole: bool
    expanded: bool = False


class LayerCall:
    """What went into a layer, and as the backward pass goes on, what comes back.

    Parameters
    ----------
    layer : TracedLayer
        The layer.
    arguments, named : tuple and mapping
        What it was called with.
    """

    def __init__(
        self, layer: TracedLayer, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        self.layer = layer
        self.arguments: tuple[Any, ...] = detached(arguments)
        self.named: dict[str, Any] = detached(dict(named)) if named else {}
        self.inputs = tensors_in((self.arguments, self.named) if named else self.arguments)
        self._versions = [tensor._version for tensor in self.inputs]  # noqa: SLF001
        device = self.inputs[0].device.type if self.inputs else "cpu"
        self.device = device
        self.autocast_type = (
            torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        )
        self.copies = 0  # for how many rows it was called once, if it was
        self.outputs = 0  # how many tensors it returned
        self.tapped = 0  # how many of them can have a gradient
        self.gradients: dict[int, Tensor] = {}  # by the index of the output
        self.measured = False

    def autocast(self) -> torch.autocast:
        """Return the autocast that the layer ran under."""
        # Without the cache: it would hold casts of parameters that only the second run knows.
        on = self.autocast_type is not None
        return torch.autocast(
            self.device, dtype=self.autocast_type, enabled=on, cache_enabled=False
        )

    def by_name(self) -> dict[str, Any]:
        """Return all arguments by the names that the layer has for them."""
        signature = inspect.signature(self.layer.module.forward)
        return dict(signature.bind(*self.arguments, **self.named).arguments)

    def first(self) -> Tensor:
        """Return the first argument."""
        if self.arguments:
            return self.arguments[0]
        return next(iter(self.by_name().values()))

    def check_unchanged(self) -> None:
        """Raise if an input was changed in place since the layer was called.

        torch would find this out itself, were the layer's own gradients left to it.
        """
        if [tensor._version for tensor in self.inputs] != self._versions:  # noqa: SLF001
            raise InvalidParameterError(
                f"an input of layer {self.layer.name!r} was changed in place after the layer used "
                "it, so that its gradient is lost: change a copy"
            )

    def forget(self) -> None:
        """Let go of everything that is as large as the batch."""
        self.arguments, self.named, self.inputs, self.gradients = (), {}, [], {}
        self.measured = True
