"""Any other layer: gradients of every example through ``torch.func``, exact but not cheap."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_leaves

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.use import KeptGradients, PerExample

__all__ = ["fallback_use"]


class Record(Protocol):
    """What was recorded of one call of a layer."""

    name: str
    inputs: tuple[Any, ...]
    gradients: dict[int, Tensor]
    outputs: int
    autocast: torch.autocast


def fallback_use(module: nn.Module, record: Record, examples: int) -> KeptGradients:
    """Return the use of a layer that nothing cheaper is known for.

    The layer is run once more on every example alone, as a batch of its views, and differentiated
    with respect to its own parameters (not those of its children, which are recorded themselves).

    Raises
    ------
    InvalidParameterError
        If that is not possible; the message names the layer.
    """
    rows = len(record.gradients[0]) if 0 in record.gradients else None
    _check_arguments(record, rows)
    # By every name that a parameter has, as `functional_call` is not to tie anything: a child that
    # shares a parameter counts its own use itself.
    names = {
        name: parameter
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
        if parameter.requires_grad
    }
    try:
        with record.autocast, _only_its_forward_pass(module):
            found = _gradients(module, names, record, examples)
    except RuntimeError as error:
        raise InvalidParameterError(
            f"layer {record.name!r} has no shortcut, and torch.func cannot differentiate it "
            f"example by example ({error}): split it into known layers, or use mode='exact'"
        ) from error
    result: PerExample = {}
    for name, part in found.items():
        parameter, wide = names[name], part.detach().to(torch.float32)
        result[parameter] = result[parameter] + wide if parameter in result else wide
    return KeptGradients(result)


@contextmanager
def _only_its_forward_pass(module: nn.Module) -> Iterator[None]:
    """Let a layer run without what comes after its forward pass, and leave nothing in it.

    The recorded gradient is that of what the forward pass returned, before hooks changed it. What
    the second run keeps in attributes would be tensors of `torch.func`, of no use afterwards.
    """
    former = [(part, dict(vars(part))) for part in module.modules()]
    for hooks in ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks"):
        vars(module)[hooks] = OrderedDict()
    try:
        yield
    finally:
        for part, attributes in former:
            for added in vars(part).keys() - attributes.keys():
                del vars(part)[added]
            vars(part).update(attributes)


def _check_arguments(record: Record, rows: int | None) -> None:
    """Raise unless a layer takes tensors whose first axis is the rows, and returns one of them."""
    if rows is None or record.outputs != 1:
        raise InvalidParameterError(
            f"layer {record.name!r} has no shortcut and returns several tensors: let it return one"
        )
    for part in record.inputs:
        leaves = [leaf for leaf in tree_leaves(part) if isinstance(leaf, Tensor)]
        if not isinstance(part, Tensor) and leaves:
            raise InvalidParameterError(
                f"layer {record.name!r} has no shortcut and takes a {type(part).__name__} of "
                "tensors: pass each tensor by itself"
            )
        if leaves and (part.ndim == 0 or len(part) != rows):
            raise InvalidParameterError(
                f"layer {record.name!r} has no shortcut and takes a tensor of shape "
                f"{tuple(part.shape)} beside {rows} rows: make it a buffer of the layer, or expand "
                "it to one for each row"
            )


def _gradients(
    module: nn.Module, names: Mapping[str, nn.Parameter], record: Record, examples: int
) -> dict[str, Tensor]:
    """Return every example's gradient, for each name of a parameter."""
    detached = {name: parameter.detach() for name, parameter in names.items()}

    def gradient(rows: tuple[Any, ...], output: Tensor) -> dict[str, Tensor]:
        def run(values: dict[str, Tensor]) -> Tensor:
            made: Tensor = functional_call(module, values, rows, tie_weights=False)
            return made

        return vjp(run, detached)[1](output)[0]

    grouped = tuple(_by_example(record.inputs, examples))
    axes = tuple(0 if isinstance(part, Tensor) else None for part in grouped)
    (outputs,) = _by_example((record.gradients[0],), examples)
    return vmap(gradient, in_dims=(axes, 0), randomness="error")(grouped, outputs)


def _by_example(parts: tuple[Any, ...], examples: int) -> Iterator[Any]:
    for part in parts:
        yield part.unflatten(0, (examples, -1)) if isinstance(part, Tensor) else part
