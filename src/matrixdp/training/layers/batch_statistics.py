"""Layers that normalise by the statistics of a batch, and so mix the records in it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, Self

from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.modules.batchnorm import _BatchNorm

from matrixdp.errors import InvalidParameterError

__all__ = [
    "NormalisingCall",
    "noted_batch_statistics",
    "refuse_batch_statistics",
    "uses_batch_statistics",
]


class NormalisingCall(NamedTuple):
    """A call of a layer that normalised over its batch."""

    module: nn.Module
    length: int | None
    """Of the first axis of its input, if that is known."""
    is_own: bool
    """Whether the thread of the training made it."""

    @classmethod
    def of(cls, module: nn.Module, arguments: tuple[Any, ...], *, is_own: bool) -> Self:
        """Return a call with some arguments, of which those by name are not known."""
        first = arguments[0] if arguments else None
        length = len(first) if isinstance(first, Tensor) and first.ndim else None
        return cls(module, length, is_own)

    def may_concern(self, rows: int) -> bool:
        """Return whether its input may have been records of a batch of so many rows.

        In the thread of the training it may whatever its length: parts of a batch have any. Another
        thread may well train something else.
        """
        if self.is_own or self.length is None or self.length == rows:
            return True
        return rows > 1 and self.length % rows == 0


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
        f"{described} was called while a batch was out, and used the statistics of its input: of "
        "records, these mix them or are kept. Call eval() on it, after model.train(), to use its "
        "running statistics, or use nn.GroupNorm; call what gets no records, such as a generator, "
        "before lot.batches(...) or after accumulate"
    )


@contextmanager
def noted_batch_statistics() -> Iterator[dict[NormalisingCall, None]]:
    """Return a dict that the calls of such layers in the block are put into, of all threads.

    Nothing is raised at the call: the block may be left open by an error in the user's loop, and
    whatever else is run then does not matter.
    """
    own = threading.get_ident()
    noted: dict[NormalisingCall, None] = {}

    def note(module: nn.Module, arguments: Any) -> None:
        if uses_batch_statistics(module):
            is_own = threading.get_ident() == own
            noted[NormalisingCall.of(module, arguments, is_own=is_own)] = None

    handle = torch_module.register_module_forward_pre_hook(note)
    try:
        yield noted
    finally:
        handle.remove()
