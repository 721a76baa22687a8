"""The table of layers: rules for known kinds, and ``torch.func`` for the rest."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from matrixdp.errors import ShapeError
from matrixdp.training.layers.call import LayerCall, TracedLayer
from matrixdp.training.layers.convolution import ConvolutionUse
from matrixdp.training.layers.embedding import EmbeddingUse
from matrixdp.training.layers.linear import LinearUse
from matrixdp.training.layers.normalisation import normalisation_use
from matrixdp.training.layers.per_record import use_by_record
from matrixdp.training.layers.recurrent import RecurrentCall, recurrent_uses
from matrixdp.training.layers.use import LayerUse

__all__ = ["has_rule", "layer_uses", "rule_of", "runs_as", "runs_plainly"]

_RULES: dict[type[nn.Module], str] = {
    nn.Linear: "products of inputs and gradients",
    nn.Conv1d: "Gram matrices or gradients, whichever is less work",
    nn.Conv2d: "Gram matrices or gradients, whichever is less work",
    nn.Embedding: "rows of the table that a record uses",
    nn.LSTM: "gradients of the gates, formed again",
    nn.GroupNorm: "sums over positions",
    nn.LayerNorm: "sums over positions",
    nn.RMSNorm: "sums over positions",
    nn.InstanceNorm1d: "sums over positions",
    nn.InstanceNorm2d: "sums over positions",
}

_Forward = TypeVar("_Forward", bound=Callable[..., Any])
_RUNS_AS: dict[Callable[..., Any], Callable[..., Any]] = {}


def runs_as(kind: type[nn.Module]) -> Callable[[_Forward], _Forward]:
    """Mark the forward pass of a subclass: it computes what that of a known kind does, faster.

    Then the rule of that kind holds for it as well. What is marked is the function, so that a
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


def runs_plainly(module: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Return whether a layer takes and returns what a kind does, as it has its forward pass."""
    return "forward" not in vars(module) and any(
        isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds
    )


def rule_of(layer: TracedLayer) -> str:
    """Return how gradients of a layer are formed, and why where that is slow."""
    if layer.expanded:
        return "weights expanded to all records: they are only added, multiplied or joined"
    kind = None if layer.whole else _kind(layer.module)
    if kind is not None:
        return _RULES.get(kind, _RULES[nn.Linear])
    return "run again for every record by torch.func: no rule is known for it"


def has_rule(module: nn.Module) -> bool:
    """Return whether a layer is of a known kind, and runs as that kind does."""
    return _kind(module) is not None


def layer_uses(call: LayerCall, examples: int) -> list[LayerUse]:
    """Return the uses of a layer's parameters in one call."""
    module: nn.Module = call.layer.module
    kind = None if call.layer.whole else _kind(module)
    if kind is None:
        return [use_by_record(call, examples, states=runs_plainly(module, *_RECURRENT))]
    first, gradients = call.first(), call.gradients
    if call.copies:
        if kind not in {nn.Linear, _transposed_linear(), nn.Embedding, nn.LayerNorm, nn.RMSNorm}:
            raise ShapeError(f"layer {call.layer.name!r} is called for all records at once")
        first = first.expand(call.copies, *first.shape)
    if kind in {nn.Linear, _transposed_linear()}:
        return [
            _linear_use(module, first, gradients[0], examples, transposed=kind is not nn.Linear)
        ]
    match module:
        case nn.LSTM():
            return list(recurrent_uses(module, _recurrent_call(module, call), examples))
        case nn.Conv1d() | nn.Conv2d():
            return [ConvolutionUse(module, first, gradients[0], examples)]
        case nn.Embedding():
            gradient = gradients[0].reshape(examples, -1, module.weight.shape[1])
            return [EmbeddingUse(module, first.reshape(examples, -1), gradient)]
    return [normalisation_use(module, first, gradients[0], examples)]  # type: ignore[arg-type]


def _linear_use(
    module: nn.Module, inputs: Tensor, outputs: Tensor, examples: int, *, transposed: bool
) -> LinearUse:
    weight, bias = cast("nn.Parameter", module.weight), cast("nn.Parameter | None", module.bias)
    inputs, outputs = (
        tensor.reshape(examples, -1, tensor.shape[-1]) for tensor in (inputs, outputs)
    )
    return LinearUse(weight, bias, inputs, outputs, transposed=transposed)


def _transposed_linear() -> type[nn.Module] | None:
    """Return GPT-2's linear layer if transformers is loaded, as any model that has one does."""
    return getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)


_RECURRENT = nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell


def _kind(module: nn.Module) -> type[nn.Module] | None:
    """Return the known kind whose rule holds for a layer.

    None for an instance with a forward pass of its own (unless `runs_as` marks it), a weight that
    something else computes, or one that is the bias as well.
    """
    own = vars(module)
    if "forward" in own or "_conv_forward" in own:
        return None
    if isinstance(module, nn.LSTM) and (module.proj_size or not module.batch_first):
        return None
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if weight is bias and isinstance(weight, nn.Parameter):
        return None
    transposed = _transposed_linear()
    for kind in _RULES if transposed is None else (*_RULES, transposed):
        if isinstance(module, kind):
            forward = type(module).forward
            plain = _RUNS_AS.get(forward, forward) is kind.forward
            plain = plain and _convolution(type(module)) is _convolution(kind)
            parameters = plain and all(
                parameter is None or isinstance(parameter, nn.Parameter)
                for parameter in (weight, bias)
                if not isinstance(module, nn.LSTM)
            )
            return kind if parameters else None
    return None


def _convolution(kind: type[nn.Module]) -> Callable[..., Any] | None:
    """Return what the forward pass of a convolution calls, which may be replaced as well."""
    return getattr(kind, "_conv_forward", None)


def _recurrent_call(module: nn.LSTM, call: LayerCall) -> RecurrentCall:
    """Return the call of an LSTM, whose batches come first."""
    named = call.by_name()
    first, states = named["input"], named.get("hx")
    # All of it in one type: autocast may have run the layer in another one than its weights have.
    # Never in 16 bits: gradients of gates would be scaled in them, and a share of the smallest
    # numbers of float16 is rounded to nothing or to all of it.
    dtype = torch.promote_types(cast("Tensor", module.weight_ih_l0).dtype, torch.float32)
    gradients = {index: tensor.to(dtype) for index, tensor in call.gradients.items()}
    return RecurrentCall(
        inputs=first.to(dtype),
        states=states,
        output_gradient=gradients.get(0),
        last_hidden_gradient=gradients.get(1),
        last_cell_gradient=gradients.get(2),
    )
