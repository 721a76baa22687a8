"""Layers that normalise by the statistics of a batch, and so mix the records in it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm

from matrixdp.errors import InvalidParameterError

__all__ = ["check_no_batch_statistics", "refusing_batch_statistics", "uses_batch_statistics"]


def uses_batch_statistics(module: nn.Module) -> bool:
    """Return whether a layer, as it is now, normalises over the batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def check_no_batch_statistics(module: nn.Module, described: str | None = None) -> None:
    """Raise if a layer that is called for the losses of a batch normalises over that batch.

    It need not belong to the model that is trained: what it mixes enters the losses all the same,
    and in mode ``exact`` it would keep something of every record.

    Parameters
    ----------
    module : nn.Module
        Any module.
    described : str, optional
        What to call it; by default its kind.

    Raises
    ------
    InvalidParameterError
        Which says how to go on.
    """
    if uses_batch_statistics(module):
        raise InvalidParameterError(
            f"{described or 'a ' + type(module).__name__} is called on the records of a batch and "
            "uses their statistics, which mix them or are kept: call eval() on it, after "
            "model.train(), to use its running statistics, or use nn.GroupNorm"
        )


@contextmanager
def refusing_batch_statistics() -> Iterator[None]:
    """Refuse such layers within the block, in this thread."""
    own = threading.get_ident()

    def check(module: nn.Module, _arguments: Any) -> None:
        if threading.get_ident() == own:
            check_no_batch_statistics(module)

    handle = torch_module.register_module_forward_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()
