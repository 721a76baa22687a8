"""Layers that normalise by the statistics of a batch, and so mix the records in it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm

from matrixdp.errors import InvalidParameterError

__all__ = ["noted_batch_statistics", "refuse_batch_statistics", "uses_batch_statistics"]


def uses_batch_statistics(module: nn.Module) -> bool:
    """Return whether a layer, as it is now, normalises over the batch."""
    return isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)


def refuse_batch_statistics(described: str) -> NoReturn:
    """Raise since a layer that was called for the losses of a batch normalised over that batch.

    It need not belong to the model that is trained: what it mixes enters the losses all the same,
    and in mode ``exact`` it keeps something of every record.

    Parameters
    ----------
    described : str
        Which layer.

    Raises
    ------
    InvalidParameterError
        Which says how to go on.
    """
    raise InvalidParameterError(
        f"{described} was called on the records of a batch and used their statistics, which mix "
        "them or are kept: call eval() on it, after model.train(), to use its running statistics, "
        "or use nn.GroupNorm"
    )


@contextmanager
def noted_batch_statistics() -> Iterator[list[nn.Module]]:
    """Return a list that the first such layer is put into that this thread calls in the block.

    Nothing is raised at the call: the block may be left open by an error in the user's loop, and
    whatever else is run then does not matter.
    """
    own = threading.get_ident()
    noted: list[nn.Module] = []

    def note(module: nn.Module, _arguments: Any) -> None:
        if not noted and uses_batch_statistics(module) and threading.get_ident() == own:
            noted.append(module)

    handle = torch_module.register_module_forward_pre_hook(note)
    try:
        yield noted
    finally:
        handle.remove()
