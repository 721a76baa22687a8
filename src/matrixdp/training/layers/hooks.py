"""Hooks on the layers of a model for as long as a block runs, and not a moment longer."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["hooked"]

Hook = Callable[[nn.Module, Any, Any, Any], Any]
"""Called with a layer, its arguments by position and by name, and what it returned."""


@contextmanager
def hooked(hooks: Iterable[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Call hooks after the forward passes of layers within the block, before all other hooks.

    Afterwards the layers have the hooks that they had, also where an interrupt came at the worst
    moment: between a hook and its handle, or while it was removed.

    Parameters
    ----------
    hooks : iterable of pairs
        Each layer with its hook.
    """
    pairs = list(hooks)
    former = [
        (holder, dict(holder))
        for module, _ in pairs
        for holder in (module._forward_hooks, module._forward_hooks_with_kwargs)  # noqa: SLF001
    ]
    try:
        for module, hook in pairs:
            module.register_forward_hook(hook, prepend=True, with_kwargs=True)
        yield
    finally:
        try:
            _put_back(former)
        finally:
            _put_back(former)  # once more, should the first be interrupted


def _put_back(former: Iterable[tuple[Any, dict[Any, Any]]]) -> None:
    for holder, content in former:
        holder.clear()
        holder.update(content)
