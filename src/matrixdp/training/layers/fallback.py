"""Any other layer: gradients of every example through ``torch.func``, exact but not cheap."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.backends import cudnn, mha
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.randomness import RandomRunError
from matrixdp.training.layers.recurrent import check_recurrent
from matrixdp.training.layers.rerun import Call, example_gradients
from matrixdp.training.layers.trees import check_followed, tensors_in
from matrixdp.training.layers.use import KeptGradients
from matrixdp.training.layers.whole import (
    attention_call,
    check_attention,
    check_no_cache,
    recurrent_call,
    runs_plainly,
)

__all__ = ["fallback_use", "is_known"]


class RecordedCall(Protocol):
    """One call of a layer, as it was recorded."""

    name: str
    whole: bool
    inputs: tuple[Any, ...]
    by_name: tuple[str, ...]
    gradients: dict[int, Tensor]
    outputs: int
    returned: dict[int, Tensor]
    autocast: torch.autocast
    half: bool


def fallback_use(module: nn.Module, call: RecordedCall, examples: int) -> KeptGradients:
    """Return the use of a layer that nothing cheaper is known for.

    The layer is run once more on every example alone, as a batch of its views, and differentiated
    with respect to its own parameters. Those of its children are not among them, as these are
    recorded themselves, unless the layer was recorded as a whole.

    Raises
    ------
    InvalidParameterError
        If that is not possible; the message names the layer.
    ShapeError
        If an input has other rows than the batch.
    """
    again, autocast = _call(module, call), call.autocast
    if is_known(module):
        # As autocast would have it, types do not match in the backward pass of `torch.func`.
        again = again.in_type(next(module.parameters()).dtype)
        autocast = torch.autocast(again.inputs[0].device.type, enabled=False)
    # By every name that a parameter has, as `functional_call` is not to tie anything: a child that
    # shares a parameter counts its own use itself.
    names = {
        name: parameter
        for name, parameter in module.named_parameters(recurse=call.whole, remove_duplicate=False)
        if parameter.requires_grad
    }
    try:
        with autocast, _plain_kernels(module):
            found, mixed = example_gradients(
                module, names, again, examples, one_by_one=_is_fused(module, again)
            )
    except RandomRunError as error:
        raise InvalidParameterError(
            f"layer {call.name!r} has no shortcut, and draws random numbers, for instance for "
            "dropout, which a second run cannot repeat: give each parameter that it holds itself "
            "to a small module of its own, or use mode='exact'"
        ) from error
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise InvalidParameterError(
            f"layer {call.name!r} has no shortcut, and cannot be run again on one example alone "
            f"({error}): split it into known layers, or use mode='exact'"
        ) from error
    return KeptGradients(found, mixed)


def _call(module: nn.Module, call: RecordedCall) -> Call:
    """Return what was recorded, and where the rows are in it."""
    rows = len(tensors_in(call.inputs)[0])
    check_no_cache(module, call.name, whole=call.whole)
    # Checked again: both kinds may have been changed since training began.
    if isinstance(module, nn.MultiheadAttention) and is_known(module):
        check_attention(module, call.name)
        return attention_call(module, call, rows)
    if isinstance(module, nn.RNNBase) and is_known(module):
        check_recurrent(module, call.name)
        return recurrent_call(module, call, rows)
    if isinstance(module, nn.RNNCellBase) and is_known(module):
        return recurrent_call(module, call, rows)
    _check_arguments(call, rows)
    axes = tuple(0 if isinstance(part, Tensor) else None for part in tree_leaves(call.inputs))
    firsts = dict.fromkeys(call.gradients, 0)
    return Call(
        call.inputs,
        axes,
        call.gradients,
        firsts,
        call.outputs,
        call.by_name,
        call.returned,
        call.half,
    )


_CELLS = nn.RNNCell, nn.GRUCell, nn.LSTMCell


def is_known(module: nn.Module) -> bool:
    """Return whether a layer is one of torch's own, which run in any type."""
    return runs_plainly(module, nn.MultiheadAttention, nn.RNN, nn.GRU, nn.LSTM, *_CELLS)


def _check_arguments(call: RecordedCall, rows: int) -> None:
    """Raise unless the first axis of all tensors that a layer takes is the rows."""
    check_followed(call.name, "takes", call.inputs)
    for part in tensors_in(call.inputs):
        if part.ndim == 0 or len(part) != rows:
            raise InvalidParameterError(
                f"layer {call.name!r} has no shortcut and takes a tensor of shape "
                f"{tuple(part.shape)} beside {rows} rows: make it a buffer of the layer, or expand "
                "it to one for each row"
            )


def _is_fused(module: nn.Module, again: Call) -> bool:
    """Return whether a layer runs in kernels that ``vmap`` cannot take apart, even without cuDNN.

    These are the cells of GRU and LSTM on a GPU.
    """
    fused = runs_plainly(module, nn.GRU, nn.LSTM, nn.GRUCell, nn.LSTMCell)
    return fused and again.inputs[0].device.type != "cpu"


@contextmanager
def _plain_kernels(module: nn.Module) -> Iterator[None]:
    """Run a layer by operations that ``vmap`` knows; most fused kernels are not among them."""
    former = cudnn.enabled
    cudnn.enabled = former and not isinstance(module, nn.RNNBase)
    fast = mha.get_fastpath_enabled()
    mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            # That the layer is slow has been said by its name.
            warnings.filterwarnings("ignore", "There is a performance drop because we have not")
            yield
    finally:
        cudnn.enabled = former
        mha.set_fastpath_enabled(fast)
