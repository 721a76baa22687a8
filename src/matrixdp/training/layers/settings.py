"""Settings of a layer's call beside its tensors: they must be the same when it is measured."""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = ["settings_of"]

# Attributes that the gradients are formed by. Layers of the user's own have none that are known,
# but what they return is compared.
_ATTRIBUTES: dict[type[nn.Module], tuple[str, ...]] = {
    _ConvNd: (
        *("stride", "padding", "dilation", "groups", "padding_mode"),
        "_reversed_padding_repeated_twice",
    ),
    nn.GroupNorm: ("num_groups", "eps"),
    nn.LayerNorm: ("normalized_shape", "eps"),
    _InstanceNorm: ("eps", "track_running_stats"),
    nn.Embedding: ("num_embeddings", "padding_idx"),
    nn.RNNBase: (
        *("hidden_size", "proj_size", "num_layers", "bidirectional"),
        *("bias", "batch_first", "dropout"),
    ),
    nn.MultiheadAttention: ("num_heads", "batch_first", "dropout", "add_zero_attn"),
}


def settings_of(module: nn.Module) -> tuple[Any, ...]:
    """Return something that is equal as long as a layer would do the same with its parameters.

    That is a forward pass of the instance's own, the hooks on its input, and its settings.
    """
    own = vars(module)
    forward = own.get("forward"), own.get("_conv_forward")
    settings = _reader(type(module))(module)  # type: ignore[arg-type]
    return (*forward, *module._forward_pre_hooks, settings)  # noqa: SLF001


@lru_cache(maxsize=256)
def _reader(kind: type[nn.Module]) -> Callable[[nn.Module], Any]:
    for known, names in _ATTRIBUTES.items():
        if issubclass(kind, known):
            return attrgetter(*names)
    return _nothing


def _nothing(_module: nn.Module) -> None:
    return None
