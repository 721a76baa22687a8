r"""Graph convolutions whose examples are nodes: each brings the rows of its neighbourhood along.

The graph and all features are public; what is private is whether a node's loss takes part. One
node's loss depends on the features of its neighbours, and a neighbour serves several nodes, so a
pass over the whole graph would mix examples. Here every example gets copies of the rows that its
loss depends on. Its gradient is then that of a sequence, of which its rows are the positions.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError

__all__ = ["GraphConvolution", "Neighbourhoods", "NodeRows"]


class NodeRows(NamedTuple):
    """The rows that the losses of some nodes depend on.

    Attributes
    ----------
    features : Tensor, shape (nodes, neighbours, features)
        The features of each node's neighbours; zeros where it has fewer than others.
    weights : Tensor, shape (nodes, neighbours)
        With which the graph adds up the neighbours; zero where there is none.
    """

    features: Tensor
    weights: Tensor


class Neighbourhoods:
    """The neighbours of every node of a public graph, and their weights.

    Parameters
    ----------
    propagation : Tensor, shape (nodes, nodes)
        Sparse or dense: row i has the weights with which node i adds up other nodes, for instance
        ``D^(-1/2) (A + I) D^(-1/2)`` of a graph with adjacency A and degrees D.

    Raises
    ------
    ShapeError, InvalidParameterError
        If it is not a square matrix of finite numbers, or has a row without any weight.

    Examples
    --------
    >>> import torch
    >>> path = torch.tensor([[0.5, 0.5, 0.0], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]])
    >>> near = Neighbourhoods(path)
    >>> rows = near.rows(torch.eye(3), torch.tensor([0, 1]))
    >>> rows.features.shape, rows.weights.sum(1).tolist()
    (torch.Size([2, 3, 3]), [1.0, 1.0])
    """

    def __init__(self, propagation: Tensor) -> None:
        if propagation.ndim != 2 or propagation.shape[0] != propagation.shape[1]:
            raise ShapeError(
                f"propagation has shape {tuple(propagation.shape)}: pass one row and one column "
                "for each node"
            )
        entries = propagation.to_sparse_coo().coalesce()
        if not bool(entries.values().isfinite().all()):
            raise InvalidParameterError("propagation holds NaN or infinity: pass finite weights")
        nodes, neighbours = entries.indices()
        counts = torch.bincount(nodes, minlength=len(propagation))
        if not bool((counts > 0).all()):
            raise InvalidParameterError(
                "propagation has a row without any weight: give every node at least itself"
            )
        # coalesce sorts by row, so that a neighbour's place is its number less that of its row
        starts = counts.cumsum(0) - counts
        places = torch.arange(len(nodes), device=nodes.device) - starts[nodes]
        shape = (len(propagation), int(counts.max()))
        self._neighbours = neighbours.new_zeros(shape)
        self._neighbours[nodes, places] = neighbours
        self._weights = entries.values().new_zeros(shape)
        self._weights[nodes, places] = entries.values()
        self._counts = counts

    def rows(self, features: Tensor, nodes: Tensor) -> NodeRows:
        """Return the rows of some nodes' neighbourhoods, as long as the longest of them.

        Parameters
        ----------
        features : Tensor, shape (all nodes, features)
            Of every node of the graph.
        nodes : Tensor of int, shape (nodes,)
            The examples of a batch.
        """
        longest = int(self._counts[nodes].max()) if len(nodes) else 0
        weights = self._weights[nodes, :longest]
        found = features[self._neighbours[nodes, :longest]]
        # Padding points at node 0: its features must not enter anything.
        return NodeRows(found * (weights != 0).unsqueeze(2).to(found.dtype), weights)


class GraphConvolution(nn.Module):
    """Adds up the rows of a neighbourhood, then applies a linear layer.

    ``sum_k weights[k] W rows[k] = W (sum_k weights[k] rows[k])``, so the linear layer sees one row
    for each example.

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
        """Return one row for each example.

        Parameters
        ----------
        rows : Tensor, shape (nodes, neighbours, in_features)
            What the layers before made of the neighbours' features.
        weights : Tensor, shape (nodes, neighbours)
            As `Neighbourhoods.rows` gives them.
        """
        return self.linear(torch.einsum("nk,nkf->nf", weights, rows))
