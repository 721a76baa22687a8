"""A block after which a model and all generators are what they were before."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matrixdp.training.model.tensors import tensors_of

__all__ = ["same_draws", "untouched", "written"]


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Leave weights, buffers, gradients, attributes and generators as they were.

    Parameters
    ----------
    model : nn.Module
        The model, which is run within the block.
    """
    modules = [(module, dict(vars(module))) for module in model.modules()]
    registered: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (holder, dict(holder))
        for module, _ in modules
        for holder in (module._parameters, module._buffers, module._modules)  # noqa: SLF001
    ]
    values = [(tensor, tensor._version, tensor.detach().clone()) for _, tensor in tensors_of(model)]  # noqa: SLF001
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng({tensor.device for tensor, _, _ in values if tensor.is_cuda}):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002
        for module, attributes in modules:
            vars(module).clear()
            vars(module).update(attributes)
        for holder, content in registered:
            holder.clear()
            holder.update(content)
        with torch.no_grad():
            for tensor, version, value in values:
                if tensor._version != version or written(tensor, value):  # noqa: SLF001
                    tensor.copy_(value)
        torch.clear_autocast_cache()  # of what the values were meanwhile
        for tensor, gradient in gradients:
            tensor.grad = gradient


def written(tensor: Tensor, value: Tensor) -> bool:
    """Return whether a tensor has other numbers than it had, also where its version is the same."""
    if tensor.layout is not torch.strided:
        return False  # whose numbers cannot be compared
    return not torch.equal(tensor, value) and not bool(value.isnan().any())


# After these, the first numbers of both generators are small, in the middle, and large.
_SEEDS = (55, 35, 56)


def same_draws(turn: int) -> None:
    """Let Python's and numpy's generators draw the same in every run of one turn of a check."""
    seed = _SEEDS[turn % len(_SEEDS)]
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
