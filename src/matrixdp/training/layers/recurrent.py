r"""Long short-term memory layers: gate gradients computed again, step by step.

One step is ``z = W_ih x + b_ih + W_hh h' + b_hh``, split into the gates i, f, g, o; then
``c = s(f) c' + s(i) tanh(g)`` and ``h = s(o) tanh(c)``, where s is the logistic function and a
prime marks the step before. The gradients of all parameters follow from those of z, as in a linear
layer on a sequence. The z of all steps follow from the kept inputs and outputs in one product
each; only the gradients have to run back through time step by step.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.backends import cudnn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.linear import LinearUse

__all__ = ["RecurrentCall", "check_recurrent", "recurrent_uses"]


class RecurrentCall(NamedTuple):
    """One call of an LSTM, batch first.

    Gradients are None where the losses do not depend on that output.
    """

    inputs: Tensor  # (rows, steps, in)
    states: tuple[Tensor, Tensor] | None  # before the first step: (layers, rows, hidden) each
    output_gradient: Tensor | None  # (rows, steps, directions * hidden)
    last_hidden_gradient: Tensor | None  # (layers * directions, rows, hidden)
    last_cell_gradient: Tensor | None


class _Direction(NamedTuple):
    """The parameters of one layer in one direction."""

    input_weight: nn.Parameter
    hidden_weight: nn.Parameter
    input_bias: nn.Parameter | None
    hidden_bias: nn.Parameter | None


def check_recurrent(module: nn.RNNBase, name: str) -> None:
    """Raise if a recurrent layer of any kind cannot be differentiated example by example."""
    kind = type(module).__name__
    if not module.batch_first:
        # Given a batch with the rows first, as all other layers want it, it would take the rows for
        # steps in time and mix the examples; no shape tells.
        raise InvalidParameterError(
            f"layer {name!r} ({kind}) takes the first axis for time: use batch_first=True"
        )
    trained = any(parameter.requires_grad for parameter in module.parameters())
    if trained and module.dropout and module.num_layers > 1:
        # What was dropped between its layers is known to the layer alone.
        raise InvalidParameterError(
            f"layer {name!r} ({kind}) has dropout={module.dropout} between its layers, which "
            f"cannot be repeated: use one {kind} for each layer and nn.Dropout between them, or "
            "mode='exact'"
        )


def recurrent_uses(module: nn.LSTM, call: RecurrentCall, examples: int) -> list[LinearUse]:
    """Return the uses of an LSTM's parameters, two for each layer and direction."""
    directions = 2 if module.bidirectional else 1
    inputs = [call.inputs]
    for layer in range(module.num_layers):
        hidden = [_outputs(module, inputs[layer], call, layer, side) for side in range(directions)]
        inputs.append(torch.cat(hidden, dim=2))
    uses: list[LinearUse] = []
    gradient = call.output_gradient
    if gradient is None:
        gradient = torch.zeros_like(inputs[-1])
    for layer in reversed(range(module.num_layers)):
        below = torch.zeros_like(inputs[layer])
        for side in range(directions):
            part = slice(side * module.hidden_size, (side + 1) * module.hidden_size)
            parameters = _parameters(module, layer, side)
            gates, before = _gate_gradients(
                parameters,
                (inputs[layer], inputs[layer + 1][..., part], gradient[..., part]),
                call,
                layer * directions + side,
                backwards=side == 1,
            )
            below = below + gates @ _detached(parameters.input_weight, gates)
            for weight, bias, rows in (
                (parameters.input_weight, parameters.input_bias, inputs[layer]),
                (parameters.hidden_weight, parameters.hidden_bias, before),
            ):
                uses.append(
                    LinearUse(
                        weight, bias, _by_example(rows, examples), _by_example(gates, examples)
                    )
                )
        gradient = below
    return uses


def _by_example(rows: Tensor, examples: int) -> Tensor:
    return rows.reshape(examples, -1, rows.shape[-1])


def _detached(parameter: nn.Parameter, like: Tensor) -> Tensor:
    return parameter.detach().to(like.dtype)


def _parameters(module: nn.LSTM, layer: int, side: int) -> _Direction:
    suffix = f"_l{layer}" + ("_reverse" if side else "")
    return _Direction(
        getattr(module, "weight_ih" + suffix),
        getattr(module, "weight_hh" + suffix),
        getattr(module, "bias_ih" + suffix) if module.bias else None,
        getattr(module, "bias_hh" + suffix) if module.bias else None,
    )


def _start(module_states: tuple[Tensor, Tensor] | None, index: int, like: Tensor) -> list[Tensor]:
    """Return hidden and cell state before the first step, zero unless they were given."""
    if module_states is None:
        return [torch.zeros_like(like), torch.zeros_like(like)]
    return [state[index].to(like.dtype) for state in module_states]


def _outputs(module: nn.LSTM, inputs: Tensor, call: RecurrentCall, layer: int, side: int) -> Tensor:
    """Return the hidden states of all steps of one layer in one direction."""
    own = _parameters(module, layer, side)
    parameters = [_detached(parameter, inputs) for parameter in own if parameter is not None]
    directions = 2 if module.bidirectional else 1
    rows = inputs.flip(1) if side else inputs
    like = inputs.new_zeros(len(inputs), module.hidden_size)
    start = [state[None] for state in _start(call.states, layer * directions + side, like)]
    # has_biases, num_layers, dropout, train, bidirectional, batch_first
    options = (module.bias, 1, 0.0, False, False, True)
    former = cudnn.enabled
    # cuDNN wants the weights in one piece of memory, and warns where they are not. Those of one
    # layer and direction are a part of a larger piece.
    cudnn.enabled = False
    try:
        hidden = torch._VF.lstm(rows, start, parameters, *options)[0]  # noqa: SLF001
    finally:
        cudnn.enabled = former
    return hidden.flip(1) if side else hidden


def _gate_gradients(
    parameters: _Direction,
    sequences: tuple[Tensor, Tensor, Tensor],
    call: RecurrentCall,
    index: int,
    *,
    backwards: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of z at every step, and the hidden states before every step.

    The sequences are inputs, outputs and the gradients of outputs; the index is that of the layer
    and direction among the states.
    """
    inputs, outputs, gradient = (tensor.flip(1) if backwards else tensor for tensor in sequences)
    first, cell = _start(call.states, index, outputs[:, 0])
    before = torch.cat([first[:, None], outputs[:, :-1]], dim=1)
    hidden_weight = _detached(parameters.hidden_weight, inputs)
    total = inputs @ _detached(parameters.input_weight, inputs).T + before @ hidden_weight.T
    for bias in (parameters.input_bias, parameters.hidden_bias):
        total = total if bias is None else total + _detached(bias, inputs)
    in_gate, forget, new, out_gate = total.chunk(4, dim=2)
    in_gate, forget, out_gate = in_gate.sigmoid(), forget.sigmoid(), out_gate.sigmoid()
    new = new.tanh()
    cells = [cell]
    for step in range(inputs.shape[1]):
        cells.append(forget[:, step] * cells[-1] + in_gate[:, step] * new[:, step])
    last_hidden, last_cell = call.last_hidden_gradient, call.last_cell_gradient
    from_hidden = torch.zeros_like(cell) if last_hidden is None else last_hidden[index]
    from_cell = torch.zeros_like(cell) if last_cell is None else last_cell[index]
    steps: list[Tensor] = []
    for step in reversed(range(inputs.shape[1])):
        curve = cells[step + 1].tanh()
        wanted = gradient[:, step] + from_hidden
        i, f, g, o = in_gate[:, step], forget[:, step], new[:, step], out_gate[:, step]
        in_cell = from_cell + wanted * o * (1.0 - curve.square())
        parts = [
            in_cell * g * i * (1.0 - i),
            in_cell * cells[step] * f * (1.0 - f),
            in_cell * i * (1.0 - g.square()),
            wanted * curve * o * (1.0 - o),
        ]
        steps.append(torch.cat(parts, dim=1))
        from_hidden = steps[-1] @ hidden_weight
        from_cell = in_cell * f
    gates = torch.stack(steps[::-1], dim=1)
    return (gates.flip(1), before.flip(1)) if backwards else (gates, before)
