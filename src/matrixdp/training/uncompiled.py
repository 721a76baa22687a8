"""Compiled code: refused where it is seen, and run as it was written where it is not.

``torch.compile`` makes code for the first shape it meets and other code after the second, and
TorchScript after its first runs. Which code a record meets, and so how its gradient is rounded,
would depend on the records before it. Compiled code also passes by what watches the layers.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from matrixdp.errors import InvalidParameterError

__all__ = ["check_still_uncompiled", "check_uncompiled", "uncompiled"]

# The stance of the compiler is one for the whole process, and blocks may overlap in any order.
_LOCK = threading.RLock()  # an end may come while garbage is collected, anywhere
_OPEN: set[object] = set()  # the blocks
# Stances that were set for them, each with the one that it took the place of.
_FORCED: list[tuple[Any, Any]] = []


def check_uncompiled(module: nn.Module, name: str) -> None:
    """Raise for a compiled module.

    Raises
    ------
    InvalidParameterError
        Which names it and says what to train instead.
    """
    how = {
        "torch.compile": isinstance(module, torch._dynamo.OptimizedModule),  # noqa: SLF001
        "its method compile()": module._compiled_call_impl is not None,  # noqa: SLF001
        "torch.jit": isinstance(module, torch.jit.ScriptModule),
    }
    for way, compiled in how.items():
        if compiled:
            raise InvalidParameterError(
                f"{f'layer {name!r}' if name else 'the model'} was compiled by {way}, and how "
                "compiled code rounds depends on the records before: train a model that is not "
                "compiled. For evaluation, other = torch.compile(model) leaves it as it is"
            )


def check_still_uncompiled() -> None:
    """Raise if what torch.compile made may have run in the block, since it no longer holds.

    Raises
    ------
    InvalidParameterError
        Which says where the stance of the compiler may be set.
    """
    stance = torch._dynamo.eval_frame._stance.stance  # noqa: SLF001
    if stance != "force_eager":
        raise InvalidParameterError(
            f"the stance of torch.compile became {stance!r} while a batch was out, so that "
            "compiled code may have run: begin and end torch.compiler.set_stance outside of the "
            "loop over lots"
        )


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run within the block, and beside it in other threads, what torch.compile made as written.

    Raises
    ------
    InvalidParameterError
        Within compiled code, where it is too late for that.
    """
    block = object()
    try:
        _begin(block)
        yield
    finally:
        try:
            _end(block)
        finally:
            _end(block)  # once more, should the first be interrupted


def _begin(block: object) -> None:
    with _LOCK:
        _OPEN.add(block)  # first: whatever interrupts the rest, its end undoes it
        frames: Any = torch._dynamo.eval_frame  # noqa: SLF001
        former = frames._stance  # noqa: SLF001
        if any(former is forced for forced, _ in _FORCED):
            return
        forced = frames.DynamoStance("force_eager")
        _FORCED.append((forced, former))
        try:
            frames._set_stance(forced)  # noqa: SLF001
        except RuntimeError as error:
            raise InvalidParameterError(
                "the loop over batches runs within torch.compile: leave that out"
            ) from error


def _end(block: object) -> None:
    with _LOCK:
        if block in _OPEN and len(_OPEN) == 1:
            # Changed, and not set back: a block of the user's own may have begun or ended
            # meanwhile, and may still bring back what was forced. Nothing is imported here, which
            # would fail when the interpreter exits.
            for forced, former in _FORCED:
                vars(forced).update(vars(former))
            _FORCED.clear()
        _OPEN.discard(block)
