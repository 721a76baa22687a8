r"""Graph convolutions whose examples are nodes: each brings the rows of its neighbourhood along.

The graph and all features are public; what is private is whether a node's loss takes part. One
node's loss depends on the features of its neighbours, and a neighbour serves several nodes, so a
pass over the whole graph would mix examples. Here every example gets copies of the rows that its
loss depends on. Its gradient is then that of a sequence, of which its rows are the positions. For
several convolutions rows are nested: each neighbour has a neighbourhood, on one more axis.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from matrixdp.errors import InvalidParameterError, ShapeError

__all__ = ["Neighbourhoods", "Neighbours", "NodeRows"]


class Neighbours(NamedTuple):
    """The neighbours of some nodes.

    Attributes
    ----------
    nodes : Tensor of int, shape (..., neighbours)
        Their indices; -1 where a node has fewer than others.
    weights : Tensor, shape (..., neighbours)
        The graph's weight of each; zero where a node has fewer than others.
    """

    nodes: Tensor
    weights: Tensor


class NodeRows(NamedTuple):
    """The rows that the losses of some nodes depend on.

    Attributes
    ----------
    features : Tensor, shape (..., neighbours, features)
        The features of each node's neighbours; zeros where it has fewer than others.
    weights : Tensor, shape (..., neighbours)
        The graph's weight of each neighbour; zero where a node has fewer than others.
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

    For two convolutions, the rows are those of the neighbours' neighbours:

    >>> from matrixdp.training import GraphConvolution
    >>> first, second = GraphConvolution(3, 4), GraphConvolution(4, 2)
    >>> outer = near.neighbours(torch.tensor([0, 1]))
    >>> inner = near.rows(torch.eye(3), outer.nodes)
    >>> second(torch.tanh(first(*inner)), outer.weights).shape
    torch.Size([2, 2])
    """

    def __init__(self, propagation: Tensor) -> None:
        if not isinstance(propagation, Tensor):
            raise InvalidParameterError(
                f"propagation is a {type(propagation).__name__}: pass a tensor of weights"
            )
        if propagation.ndim != 2 or propagation.shape[0] != propagation.shape[1]:
            raise ShapeError(
                f"propagation has shape {tuple(propagation.shape)}: pass one row and one column "
                "for each node"
            )
        if not len(propagation):
            raise ShapeError("propagation has no nodes: pass a row and a column for at least one")
        if not propagation.is_floating_point():
            raise InvalidParameterError(
                f"propagation holds {propagation.dtype}: pass weights in the type of the features, "
                "for instance by .float()"
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
        # coalesce sorts by row, so that a neighbour's column is its index in its row
        starts = counts.cumsum(0) - counts
        columns = torch.arange(len(nodes), device=nodes.device) - starts[nodes]
        shape = (len(propagation), int(counts.max()))
        self._neighbours = neighbours.new_zeros(shape)
        self._neighbours[nodes, columns] = neighbours
        self._weights = entries.values().new_zeros(shape)
        self._weights[nodes, columns] = entries.values()
        self._counts = counts

    def neighbours(self, nodes: Tensor) -> Neighbours:
        """Return the neighbours of some nodes, padded to the largest number of them.

        Parameters
        ----------
        nodes : Tensor of int, shape (nodes, ...)
            The examples of a batch, or the neighbours of each; -1 has no neighbours.
        """
        known = nodes.clamp(min=0)
        longest = int(self._counts[known].max()) if nodes.numel() else 0
        weights = self._weights[known, :longest] * (nodes >= 0).unsqueeze(-1)
        return Neighbours(self._neighbours[known, :longest].where(weights != 0, -1), weights)

    def rows(self, features: Tensor, nodes: Tensor) -> NodeRows:
        """Return the rows of some nodes' neighbourhoods, padded to the longest.

        Parameters
        ----------
        features : Tensor, shape (all nodes, features)
            Of every node of the graph.
        nodes : Tensor of int, shape (nodes, ...)
            The examples of a batch; or for several convolutions the nodes that `neighbours` gives.

        Raises
        ------
        ShapeError
            If there are not features for every node.
        """
        if len(features) != len(self._counts):
            raise ShapeError(
                f"features has {len(features)} rows, but the graph has {len(self._counts)} nodes: "
                "pass the features of all nodes, and the batch as nodes"
            )
        near = self.neighbours(nodes)
        found = features[near.nodes.clamp(min=0)]
        # Not by a product: the node that stands for none may have features that are no numbers.
        return NodeRows(found.masked_fill((near.nodes < 0).unsqueeze(-1), 0), near.weights)
