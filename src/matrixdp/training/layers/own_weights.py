"""Weights that a forward pass uses itself: expanded to all rows for as long as losses are computed.

Scales of normalisations, embeddings of positions, tokens of classes: what is broadcast over the
rows has its gradients from the one backward pass, with no rule for the layer.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from matrixdp.training.layers.call import TracedLayer
from matrixdp.training.layers.expanded import Expansion

__all__ = ["expanded_weights", "uses_own_weights"]

_CONTAINERS = (
    *(nn.Module, nn.ParameterDict, nn.ParameterList),
    *(nn.ModuleDict, nn.ModuleList, nn.Sequential),
)

Arrived = Callable[[TracedLayer, str, nn.Parameter, int, Tensor], None]
"""Called with a layer, the name that the weight has in it, the weight, 0, and all gradients."""


def uses_own_weights(module: nn.Module) -> bool:
    """Return whether a layer may use weights of its own: those of torch have other ways."""
    return any(parameter.requires_grad for parameter in module.parameters(recurse=False)) and all(
        kind in _CONTAINERS or not kind.__module__.startswith("torch.nn.")
        for kind in type(module).__mro__
    )


@contextmanager
def expanded_weights(
    layers: Iterable[TracedLayer], expansion: Expansion, arrived: Arrived
) -> Iterator[None]:
    """Put expanded weights where the weights of layers are, within the block.

    Parameters
    ----------
    layers : iterable of TracedLayer
        The layers.
    expansion : Expansion
        To how many rows.
    arrived : callable
        Gets the gradients.
    """
    former: list[tuple[dict[str, Any], str, nn.Parameter, Tensor]] = []
    for layer in layers:
        holder: dict[str, Any] = layer.module._parameters  # noqa: SLF001
        for name, parameter in holder.items():
            if parameter is not None and parameter.requires_grad:
                arrives = partial(arrived, layer, name, parameter)
                weight = expansion.expanded(parameter, layer.name, arrives)
                weight._is_param = True  # noqa: SLF001
                former.append((holder, name, parameter, weight))
    try:
        for holder, name, _, expanded in former:
            holder[name] = expanded
        yield
    finally:
        try:
            _put_back(former)
        finally:
            _put_back(former)  # once more, should the first be interrupted


def _put_back(
    former: Iterable[tuple[dict[str, Any], str, nn.Parameter, Tensor]],
) -> None:
    for holder, name, parameter, weight in former:
        # What the losses themselves have put there stays, and is found afterwards.
        if holder.get(name) is weight:
            holder[name] = parameter
