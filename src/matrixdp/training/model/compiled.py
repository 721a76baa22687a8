"""Compiled code: refused where it is seen, and run as it was written where it is not.

``torch.compile`` makes code for the first shape it meets and other code after the second, and
TorchScript after its first runs. Which code a record meets, and so how its gradient is rounded,
would depend on the records before it. Compiled code also bypasses the hooks on layers.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from matrixdp.errors import InvalidParameterError

__all__ = ["check_uncompiled", "uncompiled"]

# The stance of the compiler is one for the whole process, and threads may train beside each other.
_LOCK = threading.RLock()
_STANCES: list[Any] = []  # one for every block, of which only the first acts


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


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run within the block, and beside it in other threads, what torch.compile made as written.

    Raises
    ------
    InvalidParameterError
        Within compiled code, where it is too late for that.
    """
    with _LOCK:
        if not _STANCES:
            try:
                _STANCES.append(torch.compiler.set_stance("force_eager"))
            except RuntimeError as error:
                raise InvalidParameterError(
                    "the step is taken within torch.compile: leave that out"
                ) from error
        else:
            _STANCES.append(_STANCES[0])
    try:
        yield
    finally:
        with _LOCK:
            stance = _STANCES.pop()
            if not _STANCES:
                stance.__exit__(None, None, None)
