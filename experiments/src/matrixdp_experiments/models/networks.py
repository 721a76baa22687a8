"""The networks of the experiments, and which of them is for which data set.

With clipped gradients, small networks train better with tanh than with ReLU (Papernot et al.,
"Tempered sigmoid activations for deep learning with differential privacy", 2021). VGG-16 has a
GroupNorm before every activation, which keeps their size in check, and so it keeps its ReLU.
"""

from collections.abc import Callable

from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.models.graph import MixedGCN
from matrixdp_experiments.models.group_norm import GroupNorm

__all__ = ["FeatureNetwork", "MeanStates", "lenet", "model_for", "perceptron", "vgg16"]

_VGG_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
_VGG_GROUPS = 32


class FeatureNetwork(nn.Module):
    """A network that can be cut in two where its features leave the owner of the data.

    Parameters
    ----------
    body : nn.Module
        From inputs to one row of features for each record, each between -1 and 1.
    head : nn.Module
        From features to logits.

    Attributes
    ----------
    body, head : nn.Module
        The two parts.

    Examples
    --------
    >>> import torch
    >>> network = FeatureNetwork(nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 3))
    >>> network.features(torch.ones(5, 2)).shape, network(torch.ones(5, 2)).shape
    (torch.Size([5, 4]), torch.Size([5, 3]))
    """

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def features(self, inputs: Tensor) -> Tensor:
        """Return one row of features for each record."""
        features: Tensor = self.body(inputs)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one row of logits for each record."""
        logits: Tensor = self.head(self.features(inputs))
        return logits


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


def _alexnet() -> FeatureNetwork:
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


class MeanStates(nn.Module):
    """From the numbers of words to the mean state of a bidirectional LSTM.

    A state is a tanh times a gate, so that every feature is between -1 and 1.

    Parameters
    ----------
    words : int
        How many numbers there are; 0 stands for no word.
    width : int
        Of the embedding.
    units : int
        Of the LSTM, each way.

    Examples
    --------
    >>> import torch
    >>> body = MeanStates(words=50, width=8, units=3)
    >>> body(torch.tensor([[4, 7, 0, 0], [0, 0, 0, 0]])).shape
    torch.Size([2, 6])
    """

    def __init__(self, words: int, width: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, units, batch_first=True, bidirectional=True)

    def forward(self, words: Tensor) -> Tensor:
        """Return one row of features for each text, whose words stand before the padding."""
        # Sorted lengths and packing would save little: most texts fill the fixed length.
        states, _ = self.lstm(self.embedding(words))
        there = (words != 0).unsqueeze(2)
        count = there.sum(1).clamp(min=1)  # a text without a word has features of zero
        mean: Tensor = (states * there).sum(1) / count
        return mean


def _bilstm(words: int = 20_000) -> FeatureNetwork:
    """Return the network for IMDB: 75 units each way, 150 features, a linear head."""
    return FeatureNetwork(MeanStates(words, width=100, units=75), nn.Linear(150, 2))


def perceptron(columns: int = 105, hidden: int = 12, classes: int = 2) -> nn.Module:
    """Return a network with one hidden layer; by default the one for Adult.

    Examples
    --------
    >>> sum(part.numel() for part in perceptron().parameters())
    1298
    """
    return nn.Sequential(nn.Linear(columns, hidden), nn.Tanh(), nn.Linear(hidden, classes))


_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mnist": lenet,
    "cifar10": vgg16,
    "svhn": _alexnet,
    "imdb": _bilstm,
    "adult": perceptron,
    "cora": lambda: MixedGCN(features=1_433, classes=7),
}


def model_for(dataset: str) -> nn.Module:
    """Return a new model for a data set, with weights from torch's own generator.

    Parameters
    ----------
    dataset : str
        ``mnist`` (LeNet), ``cifar10`` (VGG-16 with GroupNorm), ``svhn`` (AlexNet), ``imdb`` (a
        bidirectional LSTM), ``adult`` (one hidden layer) or ``cora`` (a graph convolution after a
        dense layer).

    Returns
    -------
    nn.Module
        It gives one row of logits for each record. Those for images and texts are a
        `FeatureNetwork`; that for Cora is a `MixedGCN`. None of them mixes the records of a batch.

    Raises
    ------
    InvalidParameterError
        If there is no model for it.

    Examples
    --------
    >>> import torch
    >>> model_for("adult")(torch.zeros(3, 105)).shape
    torch.Size([3, 2])
    """
    if dataset not in _MODELS:
        raise InvalidParameterError(
            f"there is no model for the data set {dataset!r}: choose one of {', '.join(_MODELS)}"
        )
    return _MODELS[dataset]()
