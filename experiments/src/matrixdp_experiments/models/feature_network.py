"""A network in two parts: one that makes features, and one that classifies by them."""

from torch import Tensor, nn

__all__ = ["FeatureNetwork"]


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
