"""Any other layer: it is run once more on every record alone, and differentiated there.

The gradient is that with respect to the layer's own parameters. Those of its children are not among
them, as these are traced themselves, unless the layer is traced as a whole.
"""

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.backends import cudnn, mha
from torch.func import functional_call, vjp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

from matrixdp.errors import ShapeError
from matrixdp.training.layers.call import LayerCall
from matrixdp.training.layers.trees import tensors_in
from matrixdp.training.layers.use import KeptGradients, PerExample

__all__ = ["as_it_was", "plain_kernels", "use_by_record"]

Values = dict[str, Tensor]
"""The parameters of a layer, or their gradients, by name."""

_Run = Callable[[Values, list[Any]], list[Tensor]]

# Layers that vmap could not take, and a loop could: it would fail again for every batch.
_LOOPED: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()


class _Rows(NamedTuple):
    """The rows of one record, or of all of them with one more axis, or where that axis is.

    An axis is None where something has no rows: all records share it.
    """

    inputs: list[Any]  # what the containers hold
    gradients: list[Any]

    def changed(self, change: Callable[[Tensor, int], Tensor], axes: "_Rows") -> "_Rows":
        """Return what has rows after a change that is given their axis, and the rest as it is."""
        parts = [
            [
                tensor if axis is None else change(tensor, axis)
                for tensor, axis in zip(*pair, strict=True)
            ]
            for pair in zip(self, axes, strict=True)
        ]
        return _Rows(*parts)


def use_by_record(call: LayerCall, examples: int, *, states: bool) -> KeptGradients:
    """Return the use of a layer that no rule is known for.

    Records are run at once by ``vmap``. It cannot take every layer, for instance none that decides
    by the numbers that it gets; then records are run in a loop, from then on without trying.

    Parameters
    ----------
    call : LayerCall
        What was traced.
    examples : int
        How many records the rows belong to; each owns as many consecutive rows.
    states : bool
        Whether it is a recurrent layer or cell of torch's own, with states.

    Raises
    ------
    ShapeError
        If an input has other rows than the batch.
    """
    module = call.layer.module
    # By every name that a parameter has, as `functional_call` is not to tie anything: a child that
    # shares a parameter counts its own use itself.
    names = {
        name: parameter
        for name, parameter in module.named_parameters(
            recurse=call.layer.whole, remove_duplicate=False
        )
        if parameter.requires_grad
    }
    arguments = _arguments(call, states=states)
    leaves, structure = tree_flatten(arguments.tree)
    indices = sorted(call.gradients)
    axes = _Rows(arguments.axes, [arguments.output_axes(index) for index in indices])
    # Copies, as a backward function of the user's own may change what it is given.
    batch = _Rows(leaves, [call.gradients[index].clone() for index in indices])
    # As autocast would have it, types do not match in the backward pass of `torch.func`.
    known = states or isinstance(module, nn.MultiheadAttention)
    if known and call.autocast_type is not None:
        wide = next(module.parameters()).dtype
        batch = batch.changed(
            lambda tensor, _: tensor.to(wide) if tensor.is_floating_point() else tensor, axes
        )
    # The axis of rows becomes that of records, and of the rows of each.
    rows = batch.changed(lambda tensor, axis: tensor.unflatten(axis, (examples, -1)), axes)

    def run(values: Values, inputs: list[Any]) -> list[Tensor]:
        positional, named = tree_unflatten(inputs, structure)
        made = tensors_in(functional_call(module, values, positional, named, tie_weights=False))
        if len(made) != call.outputs:
            raise ShapeError(
                f"layer {call.layer.name!r} returns {call.outputs} tensors for the batch, and "
                f"{len(made)} for one record"
            )
        return [made[index] for index in indices]

    values = {name: parameter.detach() for name, parameter in names.items()}
    autocast = torch.autocast(call.device, enabled=False) if known else call.autocast()
    with autocast, plain_kernels(recurrent=isinstance(module, nn.RNNBase)), _no_hooks(module):
        found = _gradients(module, run, values, rows, axes)
    result: PerExample = {}
    for name, tensor in found.items():
        parameter, wider = names[name], tensor.detach().to(torch.float32)
        result[parameter] = result[parameter] + wider if parameter in result else wider
    return KeptGradients(result)


class _Arguments(NamedTuple):
    """What a layer is run with, and where the rows are in it and in what it returns."""

    tree: tuple[tuple[Any, ...], dict[str, Any]]
    axes: list[int | None]
    states_axis: int  # of all outputs but the first one

    def output_axes(self, index: int) -> int:
        return self.states_axis if index else 0


def _arguments(call: LayerCall, *, states: bool) -> _Arguments:
    module = call.layer.module
    if not call.inputs:
        raise ShapeError(f"layer {call.layer.name!r} takes no tensor, and so no rows")
    if states:
        return _recurrent_arguments(module, call)  # type: ignore[arg-type]
    rows = len(call.inputs[0]) if call.inputs[0].ndim else 0
    tree = (call.arguments, call.named)
    mask, heads = None, 1
    if isinstance(module, nn.MultiheadAttention):
        # A mask of two axes is shared by all records, even if it is as long as the batch. One of
        # three axes has consecutive rows for the heads of a record.
        mask, heads = call.by_name().get("attn_mask"), module.num_heads
    axes: list[int | None] = []
    for tensor in tree_flatten(tree)[0]:
        is_mask = tensor is mask
        if not isinstance(tensor, Tensor) or (is_mask and tensor.ndim == 2):
            axes.append(None)
            continue
        if tensor.ndim == 0 or len(tensor) != (rows * heads if is_mask else rows):
            raise ShapeError(
                f"layer {call.layer.name!r} takes a tensor of shape {tuple(tensor.shape)} beside "
                f"{rows} rows: make it a buffer of the layer, or expand it to one for each row"
            )
        axes.append(0)
    return _Arguments(tree, axes, 0)


def _recurrent_arguments(module: nn.RNNBase | nn.RNNCellBase, call: LayerCall) -> _Arguments:
    """Return the arguments of a recurrent layer or cell.

    The states of a layer have the rows on their second axis, those of a cell on the first one.
    """
    named = call.by_name()
    first, states = named["input"], named.get("hx")
    layered = isinstance(module, nn.RNNBase)
    if layered and not module.batch_first:
        raise ShapeError(
            f"layer {call.layer.name!r} takes the first axis for time: use batch_first=True"
        )
    if states is None:
        # As the layer would make them itself, but with rows: `vmap` cannot change in place what
        # all records share.
        states = _first_states(module, first)
    axis = 1 if layered else 0
    for tensor in tensors_in(states):
        if tensor.ndim <= axis or tensor.shape[axis] != len(first):
            raise ShapeError(
                f"layer {call.layer.name!r} got states of shape {tuple(tensor.shape)}: axis {axis} "
                f"must be {len(first)} long, for the rows of the batch"
            )
    return _Arguments(((first, states), {}), [0, *(axis for _ in tensors_in(states))], axis)


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


def _gradients(
    module: nn.Module, run: _Run, values: Values, rows: _Rows, axes: _Rows
) -> dict[str, Tensor]:
    """Return the gradient of every record, at once if ``vmap`` can take the layer."""
    # Cells of GRU and LSTM run in kernels on a GPU that vmap cannot take apart, even without cuDNN.
    kinds = nn.GRU, nn.LSTM, nn.GRUCell, nn.LSTMCell
    fused = isinstance(module, kinds) and rows.gradients[0].device.type != "cpu"
    if module in _LOOPED or fused:
        return _in_a_loop(run, values, rows, axes)
    try:
        return _at_once(run, values, rows, axes)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - what is not the fault of vmap is raised in the loop, too
        found = _in_a_loop(run, values, rows, axes)
        _LOOPED.add(module)
        return found


def _at_once(run: _Run, values: Values, rows: _Rows, axes: _Rows) -> Values:
    def gradient(inputs: list[Any], gradients: list[Tensor]) -> Values:
        _, pull_back, *_ = vjp(lambda values: run(values, inputs), values)
        return pull_back(gradients)[0]

    return vmap(gradient, in_dims=tuple(axes), randomness="error")(*rows)


def _in_a_loop(run: _Run, values: Values, rows: _Rows, axes: _Rows) -> Values:
    """Return gradients of all records, by plain autograd on one after another."""
    each = []
    for number in range(rows.gradients[0].shape[axes.gradients[0]]):
        mine = rows.changed(lambda tensor, axis: tensor.select(axis, number), axes)  # noqa: B023
        each.append(_gradient(run, values, mine))
    return {name: torch.stack([tensor[name] for tensor in each]) for name in values}


def _gradient(run: _Run, values: Values, rows: _Rows) -> Values:
    with torch.enable_grad():
        own = {name: tensor.detach().requires_grad_() for name, tensor in values.items()}
        made = run(own, rows.inputs)
    # An output may not depend on any of the parameters, for this record or for all.
    pairs = [pair for pair in zip(made, rows.gradients, strict=True) if pair[0].requires_grad]
    if not pairs:
        return {name: torch.zeros_like(tensor) for name, tensor in values.items()}
    outputs, gradients = zip(*pairs, strict=True)
    found = torch.autograd.grad(outputs, list(own.values()), gradients, materialize_grads=True)
    return dict(zip(own, found, strict=True))


@contextmanager
def as_it_was(module: nn.Module) -> Iterator[None]:
    """Leave the attributes of a layer and of those inside it as they were.

    Run with other parameters, recurrent layers note these, and move their own in memory when they
    run next.
    """
    former = [(inner, dict(vars(inner))) for inner in module.modules()]
    try:
        yield
    finally:
        for inner, attributes in former:
            vars(inner).clear()
            vars(inner).update(attributes)


@contextmanager
def _no_hooks(module: nn.Module) -> Iterator[None]:
    """Let a layer run without what comes before and after its forward pass.

    What was traced is what the forward pass itself took and returned.
    """
    with as_it_was(module):
        hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
        for name in hooks:
            vars(module)[name] = type(vars(module)[name])()
        yield


@contextmanager
def plain_kernels(*, recurrent: bool) -> Iterator[None]:
    """Run layers by operations that ``vmap`` knows; most fused kernels are not among them."""
    former, fast = cudnn.enabled, mha.get_fastpath_enabled()
    try:
        cudnn.enabled = former and not recurrent
        mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop because we have not")
            yield
    finally:
        cudnn.enabled = former
        mha.set_fastpath_enabled(fast)
