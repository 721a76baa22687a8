"""Layers that carry something from one record to others, whatever they are run on."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from matrixdp.errors import InvalidParameterError

__all__ = ["check_dense_gradients", "check_layer"]


def check_layer(module: nn.Module, name: str) -> None:
    """Raise for a layer that normalises over the batch, or keeps something of its records.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    match module:
        case _BatchNorm() if module.training or module.running_mean is None:
            raise InvalidParameterError(
                f"layer {name!r} is a {type(module).__name__}, which normalises over the batch, so "
                "that one record changes the gradients of all others: use nn.GroupNorm, or call "
                "its eval() first, to keep running statistics from elsewhere"
            )
        case _InstanceNorm() if module.track_running_stats:
            raise InvalidParameterError(
                f"layer {name!r} keeps running statistics of the records, which would leak: use "
                "track_running_stats=False"
            )
        case nn.Embedding() | nn.EmbeddingBag() if module.max_norm is not None:
            raise InvalidParameterError(
                f"layer {name!r} uses max_norm, which changes the table by the records that are "
                "looked up, without noise: leave it out"
            )


def check_dense_gradients(module: nn.Module, name: str) -> None:
    """Raise for a layer whose sparse gradients the mode ``exact`` cannot round.

    Raises
    ------
    InvalidParameterError
        Which names the layer and what to use instead.
    """
    match module:
        case nn.Embedding() | nn.EmbeddingBag() if module.sparse and module.weight.requires_grad:
            raise InvalidParameterError(
                f"layer {name!r} has sparse gradients, which mode='exact' cannot round, and noise "
                "would make them dense anyway: use sparse=False"
            )
