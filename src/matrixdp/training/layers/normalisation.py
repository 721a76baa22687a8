"""Group, layer and instance normalisation: one scale and shift for each channel or element.

``y = weight * n(x) + bias`` with n the normalisation alone, so an example's gradients are the sums
of ``g * n(x)`` and of ``g`` over its positions. They are small, and kept.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.training.layers.use import KeptGradients, trainable

__all__ = ["NormalisationLayer", "normalisation_use"]

NormalisationLayer = (
    nn.GroupNorm | nn.LayerNorm | nn.RMSNorm | nn.InstanceNorm1d | nn.InstanceNorm2d
)


def normalisation_use(
    module: NormalisationLayer, inputs: Tensor, outputs: Tensor, examples: int
) -> KeptGradients:
    """Return the use of a normalisation layer."""
    match module:
        case nn.LayerNorm() | nn.RMSNorm():
            found = _by_element(module, inputs, outputs, examples)
        case nn.GroupNorm():
            found = _by_channel(inputs, outputs, module.num_groups, module.eps, examples)
        case _:
            found = _by_channel(inputs, outputs, inputs.shape[1], module.eps, examples)
    # Without affine parameters these are None.
    own = module.weight, getattr(module, "bias", None)
    parameters = cast("tuple[nn.Parameter | None, ...]", own)
    kept = zip(parameters, found, strict=True)
    return KeptGradients(
        {parameter: tensor for parameter, tensor in kept if parameter in trainable(parameter)}
    )


def _by_element(
    module: nn.LayerNorm | nn.RMSNorm, inputs: Tensor, outputs: Tensor, examples: int
) -> tuple[Tensor, Tensor]:
    """Return the sums of ``g * n(x)`` and of ``g``; n(x) is computed again rather than kept."""
    shape = tuple(module.normalized_shape)
    wide, gradient = inputs.to(torch.float32), outputs.to(torch.float32)
    if isinstance(module, nn.RMSNorm):
        # By default its least variance depends on the type that it ran in.
        eps = torch.finfo(inputs.dtype).eps if module.eps is None else module.eps
        normalised = functional.rms_norm(wide, shape, eps=eps)
    else:
        normalised = functional.layer_norm(wide, shape, eps=module.eps)
    product = (gradient * normalised).reshape(examples, -1, *shape).sum(1)
    return product, gradient.reshape(examples, -1, *shape).sum(1)


def _by_channel(
    inputs: Tensor, outputs: Tensor, groups: int, eps: float, examples: int
) -> tuple[Tensor, Tensor]:
    r"""Return the sums without ever writing n(x), which is as large as the activations.

    ``n(x) = (x - mean) / deviation`` with one mean and deviation for all channels of a group, so
    ``sum_p g n(x) = (sum_p g y - mean(y) sum_p g) / deviation`` for any y that is x less a number.
    That number is the mean as float32 gives it, so that the mean of y is near zero.
    """
    rows, channels = inputs.shape[:2]
    # Without positions a channel is a scalar.
    inputs, outputs = (
        tensor.flatten(2) if tensor.ndim > 2 else tensor[..., None] for tensor in (inputs, outputs)
    )
    # Variances from sums of squares lose their digits where the mean is large.
    origins = inputs.unflatten(1, (groups, -1)).mean((2, 3), dtype=torch.float32)
    sums = _channel_sums(inputs, outputs, origins)
    gradients, products, values, squares = sums.unbind(2)
    count = channels // groups * inputs[0, 0].numel()
    mean, square = (
        tensor.unflatten(1, (groups, -1)).sum(2) / count for tensor in (values, squares)
    )
    scale = ((square - mean.square()).clamp(min=0.0) + eps).rsqrt()
    mean, scale = (tensor.repeat_interleave(channels // groups, dim=1) for tensor in (mean, scale))
    found = (scale * (products - mean * gradients), gradients)
    if rows == examples:
        return found
    product, total = (tensor.reshape(examples, -1, channels).sum(1) for tensor in found)
    return product, total


def _channel_sums(inputs: Tensor, outputs: Tensor, origins: Tensor) -> Tensor:
    """Return the sums of ``g``, ``g y``, ``y`` and ``y^2``; see `fused_channel_sums`."""
    if inputs.is_cuda:
        from matrixdp.training.kernels.fused_sums import fused_channel_sums  # noqa: PLC0415

        return fused_channel_sums(inputs, outputs, origins)
    gradient, value = outputs.to(torch.float32), inputs.to(torch.float32)
    width = inputs.shape[1] // origins.shape[1]
    value = value - origins.repeat_interleave(width, dim=1)[..., None]
    terms = (gradient, gradient * value, value, value.square())
    return torch.stack([term.sum(2) for term in terms], dim=2)
