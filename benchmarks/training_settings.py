"""The models and lots that training is measured on: each setting is a row of the table."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CPU_SETTINGS", "GPU_SETTINGS", "Setting"]


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    model: Callable[[], nn.Module]
    image: tuple[int, int, int]
    examples: int
    views: int = 1
    half: bool = False
    channels_last: bool = False
    opacus: bool = True
    exact: bool = False  # whether the mode exact is measured, too
    training: bool = False  # whether `PrivateTraining` is, with lots that are drawn


class Residual(nn.Module):
    """A block of a wide residual network, with GroupNorm before each convolution."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(16, before), nn.GroupNorm(16, width)
        self.first = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        same = before == width and stride == 1
        self.shortcut = None if same else nn.Conv2d(before, width, 1, stride=stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output."""
        start = functional.relu(self.first_norm(inputs))
        rest = inputs if self.shortcut is None else self.shortcut(start)
        made: Tensor = rest + self.second(functional.relu(self.second_norm(self.first(start))))
        return made


def wide_resnet() -> nn.Module:
    """Return WRN-16-4 for images of 32 x 32."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    before = 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        blocks += [Residual(before, width, stride), Residual(width, width, 1)]
        before = width
    head = [nn.GroupNorm(16, 256), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*blocks, *head, nn.Linear(256, 10))


def vgg(*, normalised: bool) -> nn.Module:
    """Return VGG-16 (configuration D) for images of 32 x 32."""
    layers: list[nn.Module] = []
    before = 3
    for widths in ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3):
        for width in widths:
            layers.append(nn.Conv2d(before, width, 3, padding=1))
            layers += [nn.GroupNorm(32, width)] if normalised else []
            layers.append(nn.ReLU())
            before = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers, *head)


def lenet() -> nn.Module:
    """Return LeNet for images of 28 x 28."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


def perceptron() -> nn.Module:
    """Return a small multilayer perceptron for images of 28 x 28."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


COLOUR = (3, 32, 32)
GPU_SETTINGS = (
    Setting(
        "VGG-16, lot 1,024, TF32",
        *(lambda: vgg(normalised=False), COLOUR, 1024),
        training=True,
    ),
    Setting("LeNet, lot 1,024", lenet, (1, 28, 28), 1024, exact=True, training=True),
    Setting(
        "WRN-16-4, 16 views of 64 images, bf16",
        wide_resnet,
        *(COLOUR, 64, 16),
        half=True,
        channels_last=True,
        opacus=False,
        training=True,
    ),
    Setting("VGG-16 with GroupNorm, TF32", lambda: vgg(normalised=True), COLOUR, 1024),
    Setting(
        "VGG-16, bf16, channels last",
        lambda: vgg(normalised=False),
        *(COLOUR, 1024),
        half=True,
        channels_last=True,
        opacus=False,
    ),
    Setting(
        "VGG-16 with GroupNorm, bf16, channels last",
        lambda: vgg(normalised=True),
        *(COLOUR, 1024),
        half=True,
        channels_last=True,
        opacus=False,
    ),
)
CPU_SETTINGS = (
    Setting("LeNet, lot 256, CPU", lenet, (1, 28, 28), 256, exact=True, training=True),
    Setting("MLP, lot 256, CPU", perceptron, (1, 28, 28), 256, training=True),
)
