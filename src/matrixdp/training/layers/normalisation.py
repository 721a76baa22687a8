"""Group, layer and instance normalisation: one scale and one shift for each channel or element.

``y = weight * n(x) + bias`` with n the normalisation alone, so an example's gradients are the sums
of ``g * n(x)`` and of ``g`` over its positions. They are small, and kept.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.use import KeptGradients, PerExample

__all__ = ["NormalisationLayer", "normalisation_use"]

NormalisationLayer = nn.GroupNorm | nn.LayerNorm | nn.InstanceNorm1d | nn.InstanceNorm2d


def normalisation_use(
    module: NormalisationLayer, inputs: Tensor, outputs: Tensor, examples: int
) -> KeptGradients:
    """Return the use of a normalisation layer."""
    match module:
        case nn.LayerNorm():
            found = _by_element(module, inputs, outputs, examples)
        case nn.GroupNorm():
            found = _by_channel(inputs, outputs, module.num_groups, module.eps, examples)
        case _:
            found = _by_channel(inputs, outputs, inputs.shape[1], module.eps, examples)
    result: PerExample = {}
    for parameter, part in zip((module.weight, module.bias), found, strict=True):
        if parameter is not None and parameter.requires_grad:
            result[parameter] = part
    return KeptGradients(result)


def _by_element(
    module: nn.LayerNorm, inputs: Tensor, outputs: Tensor, examples: int
) -> tuple[Tensor, Tensor]:
    """Return the sums of ``g * n(x)`` and of ``g``; n(x) is computed again rather than kept."""
    shape = tuple(module.normalized_shape)
    wide, gradient = inputs.to(torch.float32), outputs.to(torch.float32)
    normalised = functional.layer_norm(wide, shape, eps=module.eps)
    product = (gradient * normalised).reshape(examples, -1, *shape).sum(1)
    return product, gradient.reshape(examples, -1, *shape).sum(1)


def _by_channel(
    inputs: Tensor, outputs: Tensor, groups: int, eps: float, examples: int
) -> tuple[Tensor, Tensor]:
    r"""Return the sums without ever writing n(x), which is as large as the activations.

    ``n(x) = (x - mean) / deviation`` with one mean and deviation for all channels of a group, so
    ``sum_p g n(x) = (sum_p g x - mean sum_p g) / deviation``.
    """
    rows, channels = inputs.shape[:2]
    values, gradient = inputs.flatten(2), outputs.flatten(2)
    sums, products = _channel_sums(values, gradient)
    variance, mean = torch.var_mean(
        values.unflatten(1, (groups, -1)).to(torch.float32), dim=(2, 3), correction=0
    )
    width = channels // groups
    mean, scale = (
        part.repeat_interleave(width, dim=1) for part in (mean, (variance + eps).rsqrt())
    )
    found = (scale * (products - mean * sums), sums)
    views = rows // examples
    product, total = (part.reshape(examples, views, channels).sum(1) for part in found)
    return product, total


def _channel_sums(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``sum_p g`` and ``sum_p g x`` for every row and channel, in float32."""
    if inputs.is_cuda:
        from matrixdp.training.layers.fused_sums import fused_channel_sums  # noqa: PLC0415

        if inputs.stride() != outputs.stride():
            outputs = torch.empty_like(inputs, dtype=outputs.dtype).copy_(outputs)
        return fused_channel_sums(inputs, outputs)
    gradient = outputs.to(torch.float32)
    return gradient.sum(2), (gradient * inputs.to(torch.float32)).sum(2)
