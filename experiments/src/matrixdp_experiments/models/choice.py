"""The choice of a model for each data set."""

from collections.abc import Callable

from torch import nn

from matrixdp.errors import InvalidParameterError
from matrixdp_experiments.models.convolutional import alexnet, lenet, vgg16
from matrixdp_experiments.models.graph import MixedGCN
from matrixdp_experiments.models.perceptron import perceptron
from matrixdp_experiments.models.recurrent import bilstm

__all__ = ["model_for"]

_MODELS: dict[str, Callable[[], nn.Module]] = {
    "mnist": lenet,
    "cifar10": vgg16,
    "svhn": alexnet,
    "imdb": bilstm,
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
