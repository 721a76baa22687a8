"""A network with one hidden layer, for tables."""

from torch import nn

__all__ = ["perceptron"]


def perceptron(columns: int = 105, hidden: int = 12, classes: int = 2) -> nn.Module:
    """Return a network with one hidden layer; by default the one for Adult.

    Examples
    --------
    >>> sum(part.numel() for part in perceptron().parameters())
    1298
    """
    return nn.Sequential(nn.Linear(columns, hidden), nn.Tanh(), nn.Linear(hidden, classes))
