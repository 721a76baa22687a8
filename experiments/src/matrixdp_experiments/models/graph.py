"""GCN-Mixed: a dense layer on features that were propagated before, then a graph convolution."""

import torch
from torch import Tensor, nn

from matrixdp.training import GraphConvolution

__all__ = ["MixedGCN"]


class MixedGCN(nn.Module):
    """Classifies the nodes of a public graph.

    Propagating the features once before training is the first of its two graph convolutions. It
    involves nothing private and leaves a dense layer, so an example needs only the rows of its
    direct neighbours.

    Parameters
    ----------
    features, classes : int
        Columns of the features, and of the logits.
    hidden : int, optional
        Width of the layer between them.

    Examples
    --------
    >>> from matrixdp.training import Neighbourhoods
    >>> path = torch.tensor([[0.5, 0.5, 0.0], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]])
    >>> model, features = MixedGCN(features=3, classes=2), torch.eye(3)
    >>> rows = Neighbourhoods(path).rows(features, torch.tensor([0, 2]))
    >>> torch.allclose(model(*rows), model.on_whole_graph(features, path)[[0, 2]], atol=1e-6)
    True
    """

    def __init__(self, features: int, classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.dense = nn.Linear(features, hidden)
        self.convolution = GraphConvolution(hidden, classes)

    def forward(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Return one row of logits for each node of a batch.

        Parameters
        ----------
        rows : Tensor, shape (nodes, neighbours, features)
            The features of each node's neighbours, as `Neighbourhoods.rows` gives them.
        weights : Tensor, shape (nodes, neighbours)
            Of the neighbours.
        """
        logits: Tensor = self.convolution(torch.tanh(self.dense(rows)), weights)
        return logits

    def on_whole_graph(self, features: Tensor, adjacency: Tensor) -> Tensor:
        """Return the logits of all nodes in one pass, for evaluation.

        A hub repeats its rows for each of its neighbours in `forward`; here every row is computed
        once. It is not for private training, since nodes share rows.

        Parameters
        ----------
        features : Tensor, shape (nodes, features)
            Of all nodes.
        adjacency : Tensor, shape (nodes, nodes)
            Normalised; sparse or dense.
        """
        # The linear layer after the sum: the same as in `forward`, in another order.
        logits: Tensor = self.convolution.linear(adjacency @ torch.tanh(self.dense(features)))
        return logits
