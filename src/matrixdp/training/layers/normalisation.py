"""Group, layer and instance normalisation: one scale and one shift for each channel or element."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.use import KeptGradients, PerExample

__all__ = ["NormalisationLayer", "normalisation_use"]

NormalisationLayer = nn.GroupNorm | nn.LayerNorm | nn.InstanceNorm1d | nn.InstanceNorm2d


def normalisation_use(
    module: NormalisationLayer, inputs: Tensor, outputs: Tensor, examples: int
) -> KeptGradients:
    """Return the use of a normalisation layer; its gradients are sums, and small.

    ``y = weight * n(x) + bias`` with n the normalisation alone, so an example's gradients are the
    sums of ``g * n(x)`` and of ``g`` over its positions. n(x) is computed again rather than kept:
    it is as large as the activations.
    """
    normalised = _normalised(module, inputs.to(torch.float32))
    gradient = outputs.to(torch.float32)
    result: PerExample = {}
    for parameter, product in (
        (module.weight, normalised * gradient),
        (module.bias, gradient),
    ):
        if parameter is not None and parameter.requires_grad:
            result[parameter] = _summed(module, product, examples)
    return KeptGradients(result)


def _normalised(module: NormalisationLayer, inputs: Tensor) -> Tensor:
    match module:
        case nn.GroupNorm():
            return functional.group_norm(inputs, module.num_groups, eps=module.eps)
        case nn.LayerNorm():
            return functional.layer_norm(inputs, module.normalized_shape, eps=module.eps)
        case _:
            return functional.instance_norm(inputs, eps=module.eps)


def _summed(module: NormalisationLayer, product: Tensor, examples: int) -> Tensor:
    """Return the sums over every position of an example, one for each entry of the parameter."""
    by_example = product.reshape(examples, -1, *product.shape[1:])
    if isinstance(module, nn.LayerNorm):
        kept = len(module.normalized_shape)
        return by_example.reshape(examples, -1, *product.shape[product.ndim - kept :]).sum(1)
    # (examples, views, channels, positions...)
    return by_example.flatten(3).sum((1, 3)) if by_example.ndim > 3 else by_example.sum(1)
