"""A graph convolution on the rows that each node brings along."""

import torch
from torch import Tensor, nn

__all__ = ["GraphConvolution"]


class GraphConvolution(nn.Module):
    """Adds up the rows of a neighbourhood, then applies a linear layer.

    ``sum_k weights[k] W rows[k] = W (sum_k weights[k] rows[k])``, so the linear layer sees one row
    for each neighbourhood: that of an example, or in a convolution before the last that of each of
    its neighbours.

    Parameters
    ----------
    in_features, out_features : int
        Of the linear layer.
    bias : bool, optional
        Whether it has a bias.
    """

    def __init__(self, in_features: int, out_features: int, *, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return one row for each neighbourhood.

        Parameters
        ----------
        rows : Tensor, shape (nodes, ..., neighbours, in_features)
            What the layers before made of the neighbours' features.
        weights : Tensor, shape (nodes, ..., neighbours)
            As `Neighbourhoods` gives them.
        """
        return self.linear(torch.einsum("...k,...kf->...f", weights, rows))
