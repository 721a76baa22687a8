"""Any other layer: gradients of every example through ``torch.func``, exact but not cheap."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from matrixdp.training.layers.use import KeptGradients, PerExample

__all__ = ["fallback_use"]


def fallback_use(
    module: nn.Module, inputs: tuple[Any, ...], outputs: Tensor, examples: int
) -> KeptGradients:
    """Return the use of a layer that nothing cheaper is known for.

    The layer is run once more on every example alone, as a batch of its views, and differentiated
    with respect to its own parameters (not those of its children, which are recorded themselves).
    """
    own = {
        name: parameter
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    }
    detached = {name: parameter.detach() for name, parameter in own.items()}

    def gradient(rows: tuple[Any, ...], output: Tensor) -> dict[str, Tensor]:
        found = vjp(lambda values: functional_call(module, values, rows), detached)
        return found[1](output)[0]

    grouped = tuple(
        part.reshape(examples, -1, *part.shape[1:]) if isinstance(part, Tensor) else part
        for part in inputs
    )
    axes = tuple(0 if isinstance(part, Tensor) else None for part in grouped)
    by_name = vmap(gradient, in_dims=(axes, 0), randomness="error")(
        grouped, outputs.reshape(examples, -1, *outputs.shape[1:])
    )
    result: PerExample = {
        own[name]: part.detach().to(torch.float32) for name, part in by_name.items()
    }
    return KeptGradients(result)
