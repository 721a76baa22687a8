"""The table of layers: shortcuts for known kinds, ``torch.func`` for the rest."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import is_parametrized

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.batch_statistics import uses_batch_statistics
from matrixdp.training.layers.convolution import ConvolutionUse
from matrixdp.training.layers.embedding import EmbeddingUse
from matrixdp.training.layers.fallback import fallback_use
from matrixdp.training.layers.linear import LinearUse
from matrixdp.training.layers.normalisation import normalisation_use
from matrixdp.training.layers.recurrent import RecurrentCall, check_recurrent, recurrent_uses
from matrixdp.training.layers.use import LayerUse
from matrixdp.training.layers.whole import check_attention

__all__ = ["check_layer", "check_layer_alone", "has_shortcut", "layer_uses", "runs_as"]

_SHORTCUTS: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.LSTM),
    *(nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d),
)

_Forward = TypeVar("_Forward", bound=Callable[..., Any])
_RUNS_AS: dict[Callable[..., Any], Callable[..., Any]] = {}


def runs_as(kind: type[nn.Module]) -> Callable[[_Forward], _Forward]:
    """Mark the forward pass of a subclass: it computes what that of a known kind does, faster.

    Then the shortcut of that kind holds for it as well. What is marked is the function, so that a
    subclass of the subclass with yet another forward pass is not taken for the known kind.

    Parameters
    ----------
    kind : type
        For instance ``nn.GroupNorm``.
    """

    def mark(forward: _Forward) -> _Forward:
        _RUNS_AS[forward] = kind.forward
        return forward

    return mark


class RecordedCall(Protocol):
    """One call of a layer, as it was recorded."""

    name: str
    whole: bool
    shortcut: bool
    inputs: tuple[Any, ...]
    by_name: tuple[str, ...]
    gradients: dict[int, Tensor]
    outputs: int
    returned: dict[int, Tensor]
    autocast: torch.autocast
    half: bool


def _check_memory(module: nn.Module, name: str) -> None:
    """Raise for a layer that carries something from one record to others, even one by one.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    match module:
        case _BatchNorm() if uses_batch_statistics(module):
            raise InvalidParameterError(
                f"layer {name!r} is a {type(module).__name__}, which normalises over the batch, so "
                "that one example changes the gradients of all others: use nn.GroupNorm, or call "
                "its eval() first, to keep running statistics from elsewhere"
            )
        case _InstanceNorm() if module.track_running_stats:
            raise InvalidParameterError(
                f"layer {name!r} keeps running statistics of the examples, which would leak: use "
                "track_running_stats=False"
            )
        case nn.Embedding() | nn.EmbeddingBag() if module.max_norm is not None:
            raise InvalidParameterError(
                f"layer {name!r} uses max_norm, which changes the table by the records that are "
                "looked up, without noise: leave it out"
            )


def check_layer_alone(module: nn.Module, name: str) -> None:
    """Raise for a layer that cannot be trained even with one record at a time.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    _check_memory(module, name)
    match module:
        case nn.Embedding() | nn.EmbeddingBag() if module.sparse and module.weight.requires_grad:
            raise InvalidParameterError(
                f"layer {name!r} has sparse gradients, which mode='exact' cannot round, and noise "
                "would make them dense anyway: use sparse=False"
            )


def check_layer(module: nn.Module, name: str) -> None:
    """Raise for a layer that mixes examples, or whose gradients cannot be told apart by example.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    _check_memory(module, name)
    match module:
        case nn.RNNBase():
            check_recurrent(module, name)
        case nn.MultiheadAttention():
            check_attention(module, name)
        case nn.Embedding() | nn.EmbeddingBag() if module.scale_grad_by_freq:
            raise InvalidParameterError(
                f"layer {name!r} uses scale_grad_by_freq, which depends on the batch as a whole: "
                "leave it out"
            )
    if is_parametrized(module):
        _check_parametrisation(module, name)


def _check_parametrisation(module: nn.Module, name: str) -> None:
    """Raise for a parametrisation that cannot be run again as it was."""
    if isinstance(module, nn.RNNBase):
        raise InvalidParameterError(
            f"layer {name!r} ({type(module).__name__}) is parametrised, but recurrent layers hold "
            "on to the parameters they were made with: remove it with torch.nn.utils.parametrize"
        )
    if any(isinstance(part, _SpectralNorm) for part in module.modules()):
        raise InvalidParameterError(
            f"layer {name!r} has spectral_norm, which changes with every call: remove it with "
            "torch.nn.utils.parametrize, or use mode='exact' and eval()"
        )


def layer_uses(module: nn.Module, call: RecordedCall, examples: int) -> list[LayerUse]:
    """Return the uses of a layer's parameters in one recorded call."""
    if not call.shortcut:
        _warn_once(module)
        return [fallback_use(module, call, examples)]
    first: Tensor = call.inputs[0]
    match module:
        case nn.LSTM():
            # Checked again: it may have been changed since training began.
            check_recurrent(module, call.name)
            return list(recurrent_uses(module, _recurrent_call(module, call), examples))
        case nn.Linear():
            gradient = call.gradients[0]
            inputs = first.reshape(examples, -1, first.shape[-1])
            outputs = gradient.reshape(examples, -1, gradient.shape[-1])
            weight, bias = (
                cast("nn.Parameter", module.weight),
                cast("nn.Parameter | None", module.bias),
            )
            return [LinearUse(weight, bias, inputs, outputs)]
        case nn.Conv1d() | nn.Conv2d():
            return [ConvolutionUse(module, first, call.gradients[0], examples)]
        case nn.Embedding():
            gradient = call.gradients[0].reshape(examples, -1, module.weight.shape[1])
            return [EmbeddingUse(module, first.reshape(examples, -1), gradient)]
    return [normalisation_use(module, first, call.gradients[0], examples)]  # type: ignore[arg-type]


def has_shortcut(module: nn.Module) -> bool:
    """Return whether a layer is of a known kind, and runs as that kind does.

    A subclass or an instance with a forward pass of its own (unless `runs_as` marks it), a hook
    that may change the input, a weight that something else computes, or one that is the bias as
    well: then it is not.
    """
    own = vars(module)
    if "forward" in own or "_conv_forward" in own or module._forward_pre_hooks:  # noqa: SLF001
        return False
    if isinstance(module, nn.LSTM) and module.proj_size:
        return False
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if weight is bias and isinstance(weight, nn.Parameter):
        return False
    for kind in _SHORTCUTS:
        if isinstance(module, kind):
            forward = type(module).forward
            plain = _RUNS_AS.get(forward, forward) is kind.forward
            plain = plain and _convolution(type(module)) is _convolution(kind)
            return plain and all(
                part is None or isinstance(part, nn.Parameter)
                for part in (weight, bias)
                if not isinstance(module, nn.LSTM)
            )
    return False


def _convolution(kind: type[nn.Module]) -> Callable[..., Any] | None:
    """Return what the forward pass of a convolution calls, which may be replaced as well."""
    return getattr(kind, "_conv_forward", None)


_WARNED: set[str] = set()


def _warn_once(module: nn.Module) -> None:
    # By name: every parametrised layer has a class of its own.
    kind = type(module).__name__
    if kind not in _WARNED:
        _WARNED.add(kind)
        warnings.warn(
            f"{kind} has no shortcut: torch.func computes its gradients for every "
            "example, which takes more time and memory",
            stacklevel=2,
        )


def _recurrent_call(module: nn.LSTM, call: RecordedCall) -> RecurrentCall:
    """Return what was recorded of an LSTM, whose batches come first."""
    first: Tensor = call.inputs[0]
    states = call.inputs[1] if len(call.inputs) > 1 else None
    # All of it in one type: autocast may have run the layer in another one than its weights have.
    # Never in 16 bits: gradients of gates would be scaled in them, and a share of the smallest
    # numbers of float16 is rounded to nothing or to all of it.
    dtype = torch.promote_types(cast("Tensor", module.weight_ih_l0).dtype, torch.float32)
    gradients = {place: part.to(dtype) for place, part in call.gradients.items()}
    return RecurrentCall(
        inputs=first.to(dtype),
        states=None if states is None else (states[0].detach(), states[1].detach()),
        output_gradient=gradients.get(0),
        last_hidden_gradient=gradients.get(1),
        last_cell_gradient=gradients.get(2),
    )
