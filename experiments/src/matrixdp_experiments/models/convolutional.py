"""LeNet, VGG-16 and AlexNet for small images; each releases its features behind a tanh.

With clipped gradients, small networks train better with tanh than with ReLU (Papernot et al.,
"Tempered sigmoid activations for deep learning with differential privacy", 2021). VGG-16 has a
GroupNorm before every activation, which keeps their size in check, and so it keeps its ReLU.
"""

from collections.abc import Callable

from torch import Tensor, nn

from matrixdp_experiments.models.feature_network import FeatureNetwork
from matrixdp_experiments.models.group_norm import GroupNorm

__all__ = ["alexnet", "lenet", "vgg16"]

_VGG_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_VGG_GROUPS = 32


def lenet() -> FeatureNetwork:
    """Return LeNet for images of 1 x 28 x 28, which has 400 features."""
    body = nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
    )
    head = nn.Sequential(
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )
    return FeatureNetwork(body, head)


def vgg16() -> FeatureNetwork:
    """Return VGG-16 (configuration D) with GroupNorm for images of 3 x 32 x 32: 512 features."""
    layers: list[nn.Module] = []
    before = 3
    for widths in _VGG_BLOCKS:
        for width in widths:
            layers += [
                nn.Conv2d(before, width, 3, padding=1),
                # Not BatchNorm, which mixes the records of a batch.
                GroupNorm(_VGG_GROUPS, width),
                nn.ReLU(),
            ]
            before = width
        layers.append(nn.MaxPool2d(2))
    # Only the last activation is released, so only it has to be bounded.
    layers[-2] = nn.Tanh()
    head = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    network = FeatureNetwork(nn.Sequential(*layers, nn.Flatten()), head)
    # He's weights, as torchvision draws them for VGG. With PyTorch's own, the features of different
    # images hardly differ at first, and nothing is learnt for a long time.
    _draw_weights(network, _he_normal)
    return network


def _he_normal(weight: Tensor) -> Tensor:
    return nn.init.kaiming_normal_(weight, nonlinearity="relu")


def alexnet() -> FeatureNetwork:
    """Return AlexNet for images of 3 x 32 x 32, which has 1,024 features."""
    body = nn.Sequential(
        *(nn.Conv2d(3, 64, 3, stride=2, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 192, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(192, 384, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(384, 256, 3, padding=1), nn.Tanh()),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
    )
    head = nn.Sequential(
        *(nn.Linear(1_024, 4_096), nn.Tanh(), nn.Linear(4_096, 512), nn.Tanh()),
        nn.Linear(512, 10),
    )
    network = FeatureNetwork(body, head)
    # Glorot's weights, made for tanh. PyTorch's own are smaller, and eight layers without
    # normalisation let signals and gradients fade.
    _draw_weights(network, nn.init.xavier_uniform_)
    return network


def _draw_weights(network: nn.Module, draw: Callable[[Tensor], Tensor]) -> None:
    """Draw the weights of all convolutions and linear layers anew, and set their biases to zero."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            draw(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
