"""The signature of a module: equal as long as it runs as before, as far as that can be seen."""

from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType

from torch import nn

__all__ = ["signature_of"]

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
# Among these are `training`, and a `forward` of its own. No numbers: many modules count or anneal,
# and each change would be checked.
_TOLD = frozenset({bool, str, FunctionType, MethodType, BuiltinFunctionType, partial})


def signature_of(module: nn.Module) -> tuple[object, ...]:
    """Return something that is equal as long as a module is the same and runs as it did."""
    own = vars(module)
    told = tuple((name, value) for name, value in own.items() if type(value) in _TOLD)
    return module, told, *(tuple(own[name]) for name in _HOOKS)
