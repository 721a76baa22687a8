"""Running a layer once more on every example alone, to differentiate it by its parameters."""

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.func import functional_call, vjp, vmap
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from matrixdp.training.layers.randomness import nothing_drawn
from matrixdp.training.layers.same_run import differing, norms_of_inputs
from matrixdp.training.layers.trees import tensors_in
from matrixdp.training.layers.use import PerExample

__all__ = ["Call", "example_gradients"]

Values = dict[str, Tensor]
"""The parameters of a layer, or their gradients, by name."""


class Call(NamedTuple):
    """One call of a layer on a batch, and where the rows of the batch are in each tensor.

    An axis is None where something has no rows: all examples share it.
    """

    inputs: tuple[Any, ...]  # tensors may be in containers
    input_axes: tuple[int | None, ...]  # for all that the containers hold, in torch's order
    gradients: Mapping[int, Tensor]  # of the losses, by the number of the output
    gradient_axes: Mapping[int, int]
    outputs: int  # how many tensors the layer returned
    by_name: tuple[str, ...] = ()  # the names of the last inputs, of those that were passed by name
    returned: Mapping[int, Tensor] = {}  # the outputs, where they are to be compared
    half: bool = False  # whether the layer ran in 16 bits, by autocast

    def in_type(self, dtype: torch.dtype) -> "Call":
        """Return the same call with all real numbers in one type."""
        gradients = {place: part.to(dtype) for place, part in self.gradients.items()}
        inputs = tree_map_only(
            Tensor, lambda part: part.to(dtype) if part.is_floating_point() else part, self.inputs
        )
        return self._replace(inputs=inputs, gradients=gradients)


class _Rows(NamedTuple):
    """The rows of one example, or of all of them with one more axis, or where that axis is."""

    inputs: list[Any]  # what the containers hold
    gradients: list[Any]

    def changed(self, change: Callable[[Tensor, int], Tensor], axes: "_Rows") -> "_Rows":
        """Return what has rows after a change that is given their axis, and the rest as it is."""
        parts = [
            [part if axis is None else change(part, axis) for part, axis in zip(*pair, strict=True)]
            for pair in zip(self, axes, strict=True)
        ]
        return _Rows(*parts)


_Run = Callable[[Values, list[Any]], list[Tensor]]
_Made = tuple[Values, list[Tensor]]  # gradients, and the outputs that they belong to

# Layers that vmap could not take, and a loop could: it would fail again for every batch.
_LOOPED: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


def example_gradients(
    module: nn.Module,
    names: Mapping[str, nn.Parameter],
    call: Call,
    examples: int,
    *,
    one_by_one: bool = False,
) -> tuple[PerExample, Tensor | None]:
    """Return the gradient of every example with respect to some parameters of a layer.

    With it comes for every example whether the layer returned something else for it than in the
    batch, if that is to be known.

    Examples are run at once by ``vmap``. It cannot take every layer, for instance none that decides
    by the numbers that it gets; then examples are run in a loop, from then on without trying.

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
        Whether it is known that ``vmap`` cannot take the layer.

    Raises
    ------
    RandomRunError
        If the layer draws random numbers.
    """
    values = {name: parameter.detach() for name, parameter in names.items()}
    places = sorted(call.gradients)
    leaves, structure = tree_flatten(call.inputs)
    axes = _Rows(list(call.input_axes), [call.gradient_axes[place] for place in places])
    # Copies, as a backward function of the user's own may change what it is given.
    batch = _Rows(leaves, [call.gradients[place].clone() for place in places])
    # The axis of rows becomes that of examples, and of the rows of each.
    rows = batch.changed(lambda part, axis: part.unflatten(axis, (examples, -1)), axes)

    def run(values: Values, inputs: list[Any]) -> list[Tensor]:
        made = _run(module, values, tree_unflatten(inputs, structure), call)
        return [made[place] for place in places]

    tried = not one_by_one and module not in _LOOPED
    made = _at_once(module, run, values, rows, axes) if tried else None
    if made is None:
        made = _in_a_loop(module, run, values, rows, axes)
        if tried:
            _LOOPED.add(module)  # Only now: what fails in a loop as well is not the fault of vmap.
    found, outputs = made
    result: PerExample = {}
    for name, part in found.items():
        parameter, wide = names[name], part.detach().to(torch.float32)
        result[parameter] = result[parameter] + wide if parameter in result else wide
    if not call.returned:
        return result, None
    sizes = norms_of_inputs(
        _by_example(part, axis, examples)
        for part, axis in zip(leaves, axes.inputs, strict=True)
        if axis is not None
    )
    other = [
        differing(
            _by_example(call.returned[place], axis, examples),
            output.detach(),
            sizes,
            half=call.half,
        )
        for place, axis, output in zip(places, axes.gradients, outputs, strict=True)
    ]
    return result, torch.stack(other).any(0)


def _by_example(part: Tensor, axis: int, examples: int) -> Tensor:
    return part.unflatten(axis, (examples, -1)).movedim(axis, 0)


def _run(module: nn.Module, values: Values, inputs: tuple[Any, ...], call: Call) -> list[Tensor]:
    """Run a layer with other parameters; return all tensors that it returns."""
    first = len(inputs) - len(call.by_name)
    named = dict(zip(call.by_name, inputs[first:], strict=True))
    made = tensors_in(functional_call(module, values, inputs[:first], named, tie_weights=False))
    if len(made) != call.outputs:
        raise RuntimeError(
            f"it returns {call.outputs} tensors for the batch, and {len(made)} for one example"
        )
    return made


def _at_once(
    module: nn.Module, run: _Run, values: Values, rows: _Rows, axes: _Rows
) -> _Made | None:
    """Return gradients and outputs of all examples, or None if ``vmap`` cannot take the layer."""

    def gradient(inputs: list[Any], gradients: list[Tensor]) -> _Made:
        outputs, pull_back, *_ = vjp(lambda values: run(values, inputs), values)
        return pull_back(gradients)[0], outputs

    try:
        with _only_its_forward_pass(module):
            made: _Made = vmap(gradient, in_dims=tuple(axes), randomness="error")(*rows)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - what is not the fault of vmap is raised in the loop, too
        return None
    return made


def _in_a_loop(module: nn.Module, run: _Run, values: Values, rows: _Rows, axes: _Rows) -> _Made:
    """Return gradients and outputs of all examples, by plain autograd on one after another."""
    each = []
    # Activation checkpointing would save other tensors in its own second run, where parameters are
    # not frozen, and put them in each other's places.
    without = disable_saved_tensors_hooks("it saves tensors as activation checkpointing does")
    with without, nothing_drawn({part.device for part in rows.gradients}):
        for number in range(rows.gradients[0].shape[axes.gradients[0]]):
            mine = rows.changed(lambda part, axis: part.select(axis, number), axes)  # noqa: B023
            # For each alone: nothing that the layer keeps may go from one example to the next.
            with _only_its_forward_pass(module):
                each.append(_gradient(run, values, mine))
    found = {name: torch.stack([part[name] for part, _ in each]) for name in values}
    return found, [torch.stack(parts) for parts in zip(*(made for _, made in each), strict=True)]


def _gradient(run: _Run, values: Values, rows: _Rows) -> _Made:
    with torch.enable_grad():
        own = {name: part.detach().requires_grad_() for name, part in values.items()}
        made = run(own, rows.inputs)
    # An output may not depend on any of the parameters, for this example or for all.
    pairs = [pair for pair in zip(made, rows.gradients, strict=True) if pair[0].requires_grad]
    returned = [part.detach() for part in made]
    if not pairs:
        return {name: torch.zeros_like(part) for name, part in values.items()}, returned
    outputs, gradients = zip(*pairs, strict=True)
    found = torch.autograd.grad(outputs, list(own.values()), gradients, materialize_grads=True)
    return dict(zip(own, found, strict=True)), returned


@contextmanager
def _only_its_forward_pass(module: nn.Module) -> Iterator[None]:
    """Let a layer run without what comes after its forward pass, and leave nothing in it.

    The recorded gradient is that of what the forward pass returned, before hooks changed it. What
    the second run keeps in attributes would be tensors of `torch.func`, of no use afterwards.
    """
    former = [(part, dict(vars(part))) for part in module.modules()]
    held = [(one, copy(one)) for _, attributes in former for one in _own_containers(attributes)]
    for hooks in ("_forward_hooks", "_backward_hooks", "_backward_pre_hooks"):
        vars(module)[hooks] = OrderedDict()
    try:
        yield
    finally:
        for part, attributes in former:
            for added in vars(part).keys() - attributes.keys():
                del vars(part)[added]
            vars(part).update(attributes)
        for container, content in held:
            container.clear()
            (container.extend if isinstance(container, list | deque) else container.update)(content)


_ATTRIBUTES_OF_TORCH = frozenset(vars(nn.Module()))


def _own_containers(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the lists, dicts and sets that a layer keeps, apart from torch's own."""
    return [
        value
        for name, value in attributes.items()
        if isinstance(value, list | dict | set | deque) and name not in _ATTRIBUTES_OF_TORCH
    ]
