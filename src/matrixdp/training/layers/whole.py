"""Layers that are recorded as a whole, with everything inside them, and run again as a whole.

These use parameters without calling the layers that hold them, as attention does with its output
projection, or may do so, or return states whose rows are not on the first axis.
"""

import inspect
from typing import Any, Protocol

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import is_parametrized

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.layers.rerun import Call
from matrixdp.training.layers.trees import tensors_in

__all__ = [
    "attention_call",
    "check_attention",
    "check_no_cache",
    "is_whole",
    "recurrent_call",
    "runs_plainly",
]


class RecordedCall(Protocol):
    """One call of a layer, as it was recorded."""

    name: str
    inputs: tuple[Any, ...]
    by_name: tuple[str, ...]
    gradients: dict[int, Tensor]
    outputs: int


def is_whole(module: nn.Module) -> bool:
    """Return whether a layer is recorded as one, with the parameters of all layers inside it."""
    return (
        runs_plainly(module, nn.MultiheadAttention)
        or is_parametrized(module)
        or _shares_with_inside(module)
    )


def _shares_with_inside(module: nn.Module) -> bool:
    """Return whether a layer's own parameter also belongs to a layer inside it.

    By which of its names it is used cannot be told while both layers run.
    """
    own = set(module.parameters(recurse=False))
    return any(
        not own.isdisjoint(part.parameters(recurse=False))
        for part in module.modules()
        if part is not module
    )


def runs_plainly(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether a layer takes and returns what a kind does, as it has its forward pass."""
    return "forward" not in vars(module) and any(
        isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds
    )


def check_no_cache(module: nn.Module, name: str, *, whole: bool) -> None:
    """Raise if a parametrised weight comes from a cache.

    In the first run the cache would keep it for uses outside of the layer, whose gradients would be
    lost, as parameters are frozen then. In another run it would be taken for a constant.

    Raises
    ------
    InvalidParameterError
        Which names the layer.
    """
    parts = module.modules() if whole else [module]
    if parametrize._cache_enabled and any(map(is_parametrized, parts)):  # noqa: SLF001
        raise InvalidParameterError(
            f"layer {name!r} is parametrised, and its gradient cannot be found within "
            "parametrize.cached(): leave that block out"
        )


def check_attention(module: nn.MultiheadAttention, name: str) -> None:
    """Raise if attention cannot be differentiated example by example.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    if not module.batch_first:
        # Given a batch with the rows first, it would attend from one example to the others; no
        # shape tells.
        raise InvalidParameterError(
            f"layer {name!r} is a {type(module).__name__} that takes the first axis for positions: "
            "use batch_first=True"
        )
    if module.dropout and any(part.requires_grad for part in module.parameters()):
        # What was dropped is known to the layer alone.
        raise InvalidParameterError(
            f"layer {name!r} is a {type(module).__name__} with dropout={module.dropout}, which "
            "cannot be repeated: set its attribute dropout to 0.0 and use nn.Dropout after it, or "
            "mode='exact'"
        )


def attention_call(module: nn.MultiheadAttention, call: RecordedCall, rows: int) -> Call:
    """Return a recorded call of attention.

    Rows come first in every tensor but a mask of two axes, which all examples share, even if it is
    as long as the batch. A mask of three axes has consecutive rows for the heads of an example.

    Raises
    ------
    ShapeError
        If a tensor has another number of rows than the batch.
    """
    axes: list[int | None] = []
    # The names that the layer knows them by: only these tell masks apart.
    for name, part in _named(module, call).items():
        if not isinstance(part, Tensor) or (name == "attn_mask" and part.ndim == 2):
            axes.append(None)
            continue
        heads = module.num_heads if name == "attn_mask" else 1
        _check_length(call.name, name, part, 0, rows * heads)
        axes.append(0)
    return Call(
        call.inputs,
        tuple(axes),
        call.gradients,
        dict.fromkeys(call.gradients, 0),
        call.outputs,
        call.by_name,
    )


def recurrent_call(module: nn.RNNBase | nn.RNNCellBase, call: RecordedCall, rows: int) -> Call:
    """Return a recorded call of a recurrent layer or of the cell of one.

    The states of a layer have the rows on their second axis, those of a cell on the first one.

    Raises
    ------
    ShapeError
        If a tensor has another number of rows than the batch.
    """
    named = _named(module, call)
    first, states = named["input"], named.get("hx")
    # What is added here is not to be seen by the layer's own hooks, nor what they did not see.
    by_name = tuple(name for name in ("input", "hx") if name in call.by_name or name not in named)
    if states is None:
        # As the layer would make them itself, but with rows: `vmap` cannot change in place what
        # all examples share.
        states = _first_states(module, first)
    axis = 1 if isinstance(module, nn.RNNBase) else 0
    parts = tensors_in(states)
    for part in parts:
        _check_length(call.name, "hx", part, axis, rows)
    return Call(
        (first, states),
        (0, *(axis for _ in parts)),
        call.gradients,
        {place: axis if place else 0 for place in call.gradients},
        call.outputs,
        by_name,
    )


def _named(module: nn.Module, call: RecordedCall) -> dict[str, Any]:
    """Return all inputs by the names that the layer has for them."""
    order = inspect.signature(module.forward).parameters
    by_position = len(call.inputs) - len(call.by_name)
    return dict(zip((*list(order)[:by_position], *call.by_name), call.inputs, strict=True))


def _first_states(
    module: nn.RNNBase | nn.RNNCellBase, inputs: Tensor
) -> Tensor | tuple[Tensor, Tensor]:
    rows: tuple[int, ...] = (len(inputs),)
    width = module.hidden_size
    if isinstance(module, nn.RNNBase):
        rows = (module.num_layers * (2 if module.bidirectional else 1), *rows)
        width = module.proj_size or width
    hidden = inputs.new_zeros(*rows, width)
    if not isinstance(module, nn.LSTM | nn.LSTMCell):
        return hidden
    return hidden, inputs.new_zeros(*rows, module.hidden_size)


def _check_length(layer: str, name: str, part: Tensor, axis: int, length: int) -> None:
    if part.ndim <= axis or part.shape[axis] != length:
        raise ShapeError(
            f"layer {layer!r} got {name} of shape {tuple(part.shape)}: its axis {axis} must be "
            f"{length} long, for the rows of the batch"
        )
