"""The signature of a module: equal as long as it runs as it did, so far as that can be told."""

from torch import nn

__all__ = ["signature_of"]

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"


def signature_of(module: nn.Module) -> tuple[object, ...]:
    """Return something that is equal as long as a module is the same and runs as it did."""
    own = vars(module)
    hooks = tuple(tuple(own[name]) for name in _HOOKS)
    return module, module.training, own.get("forward"), own.get("batch_first"), hooks
