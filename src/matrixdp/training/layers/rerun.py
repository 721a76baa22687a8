"""Running a layer once more on every example alone, to differentiate it by its parameters."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_leaves

from matrixdp.training.layers.use import PerExample

__all__ = ["Call", "example_gradients"]


class Call(NamedTuple):
    """One call of a layer on a batch, and where the rows of the batch are in each tensor.

    Tensors may be in tuples; their axes are in tuples of the same form. An axis is None where
    something has no rows: all examples share it.
    """

    inputs: tuple[Any, ...]
    input_axes: tuple[Any, ...]
    gradients: Mapping[int, Tensor]  # of the losses, by the number of the output
    gradient_axes: Mapping[int, int]
    by_name: tuple[str, ...] = ()  # the names of the last inputs, of those that were passed by name

    def in_type(self, dtype: torch.dtype) -> "Call":
        """Return the same call with all real numbers in one type."""
        gradients = {place: part.to(dtype) for place, part in self.gradients.items()}
        return self._replace(inputs=_in_type(self.inputs, dtype), gradients=gradients)


def example_gradients(
    module: nn.Module,
    names: Mapping[str, nn.Parameter],
    call: Call,
    examples: int,
    *,
    one_by_one: bool = False,
) -> PerExample:
    """Return the gradient of every example with respect to some parameters of a layer.

    Parameters
    ----------
    module : nn.Module
        The layer.
    names : mapping of str to Parameter
        Each parameter under every name that it has in the layer.
    call : Call
        What was recorded of the layer.
    examples : int
        How many examples the rows belong to; each owns as many consecutive rows.
    one_by_one : bool, optional
        Whether examples are run in a loop. If not, they are run at once by ``vmap``, which raises
        for anything random: only a layer without it may be run in a loop.
    """
    detached = {name: parameter.detach() for name, parameter in names.items()}
    places = sorted(call.gradients)

    def gradient(rows: tuple[Any, ...], outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        def run(values: dict[str, Tensor]) -> tuple[Tensor, ...]:
            first = len(rows) - len(call.by_name)
            named = dict(zip(call.by_name, rows[first:], strict=True))
            made = functional_call(module, values, rows[:first], named, tie_weights=False)
            tensors = [part for part in tree_leaves(made) if isinstance(part, Tensor)]
            return tuple(tensors[place] for place in places)

        return vjp(run, detached)[1](outputs)[0]

    rows = _grouped(call.inputs, call.input_axes, examples)
    output_axes = tuple(call.gradient_axes[place] for place in places)
    outputs = tuple(call.gradients[place] for place in places)
    outputs = _grouped(outputs, output_axes, examples)
    with _only_its_forward_pass(module):
        if one_by_one:
            each = [
                gradient(
                    _of_example(rows, call.input_axes, number),
                    _of_example(outputs, output_axes, number),
                )
                for number in range(examples)
            ]
            found = {name: torch.stack([part[name] for part in each]) for name in detached}
        else:
            axes = (call.input_axes, output_axes)
            found = vmap(gradient, in_dims=axes, randomness="error")(rows, outputs)
    result: PerExample = {}
    for name, part in found.items():
        parameter, wide = names[name], part.detach().to(torch.float32)
        result[parameter] = result[parameter] + wide if parameter in result else wide
    return result


def _in_type(part: Any, dtype: torch.dtype) -> Any:
    if type(part) is tuple:
        return tuple(_in_type(inner, dtype) for inner in part)
    if isinstance(part, Tensor) and part.is_floating_point():
        return part.to(dtype)
    return part


def _grouped(part: Any, axis: Any, examples: int) -> Any:
    """Split the axis of rows into examples, and the rows of each."""
    if axis is None:
        return part
    if isinstance(axis, tuple):
        return tuple(_grouped(inner, its, examples) for inner, its in zip(part, axis, strict=True))
    return part.unflatten(axis, (examples, -1))


def _of_example(part: Any, axis: Any, number: int) -> Any:
    """Return the rows of one example, after `_grouped`."""
    if axis is None:
        return part
    if isinstance(axis, tuple):
        return tuple(_of_example(inner, its, number) for inner, its in zip(part, axis, strict=True))
    return part.select(axis, number)


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
