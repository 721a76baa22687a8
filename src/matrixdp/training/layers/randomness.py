"""Refusal of layers that draw random numbers: a second run would draw others than the first.

``vmap`` refuses to draw by itself. In a loop over examples, torch's generators are compared before
and after it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["RandomRunError", "nothing_drawn"]


class RandomRunError(RuntimeError):
    """A layer draws random numbers, so that a second run is another one."""


@contextmanager
def nothing_drawn(devices: Iterable[torch.device]) -> Iterator[None]:
    """Raise if torch draws random numbers within the block, and leave its generators as they were.

    Parameters
    ----------
    devices : iterable of torch.device
        Where the block runs.

    Raises
    ------
    RandomRunError
        At the end of the block, or where a generator of the user's own is drawn from.
    """
    sources = _sources(devices)
    before = [source.read() for source in sources]
    drawn = False
    try:
        with _NoGenerators():  # type: ignore[no-untyped-call]
            yield
    finally:
        for source, state in zip(sources, before, strict=True):
            if not torch.equal(source.read(), state):
                drawn = True
                source.write(state)
    if drawn:
        raise RandomRunError


class _NoGenerators(TorchDispatchMode):
    """Raises where an operation is given a generator, whose state nobody else knows of."""

    def __torch_dispatch__(
        self, function: Any, _types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        named = named or {}
        if any(isinstance(part, Generator) for part in (*arguments, *named.values())):
            raise RandomRunError
        return function(*arguments, **named)


class _Source(NamedTuple):
    """One of torch's own generators."""

    read: Callable[[], Tensor]
    write: Callable[[Tensor], None]


def _sources(devices: Iterable[torch.device]) -> list[_Source]:
    sources = [_Source(torch.get_rng_state, torch.set_rng_state)]
    # While a graph is captured, the state cannot be read. The same work has run before, and was
    # looked at then.
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return sources
    for device in {device for device in devices if device.type == "cuda"}:
        read = partial(torch.cuda.get_rng_state, device)
        sources.append(_Source(read, partial(torch.cuda.set_rng_state, device=device)))
    return sources
