"""Embeddings: a row of the table for each token, so an example's gradient has few rows."""

from typing import cast

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers.use import LayerUse, PerExample, norm_bounds_of

__all__ = ["EmbeddingUse"]


class EmbeddingUse(LayerUse):
    """An embedding. Row v of an example's gradient is the sum of ``g_t`` over its tokens v.

    One row is kept for each pair of an example and a token that occurs in it; the table itself is
    never written out for each example.

    Parameters
    ----------
    module : nn.Embedding
        The layer.
    tokens : Tensor, shape (examples, positions)
        Row numbers.
    outputs : Tensor, shape (examples, positions, dimension)
        The gradients of what came out.
    """

    def __init__(self, module: nn.Embedding, tokens: Tensor, outputs: Tensor) -> None:
        self._table = cast("nn.Parameter", module.weight)
        self._examples = len(tokens)
        # The table's own length, as torch goes by: the layer's `num_embeddings` stays what it was
        # where a longer table has replaced it.
        length = len(self._table)
        gradient = outputs.to(torch.float32)
        if module.padding_idx is not None:
            # The row of the padding token is constant: torch gives it no gradient either. A
            # negative number counts from the end.
            padding = tokens == module.padding_idx % length
            gradient = gradient.masked_fill(padding[..., None], 0.0)
        first = torch.arange(self._examples, device=tokens.device)[:, None]
        pairs, order = (first * length + tokens).flatten().sort()
        # The index of a pair among the different ones. There is a row for each token, and those
        # that repeat leave zeros at the end: counting the pairs would wait for the device, which a
        # captured graph cannot do.
        fresh = torch.ones_like(pairs)
        fresh[1:] = pairs[1:] != pairs[:-1]
        sorted_index = fresh.cumsum(0) - 1
        index = torch.empty_like(order).scatter_(0, order, sorted_index)
        known = torch.zeros_like(pairs).scatter_(0, sorted_index, pairs)
        rows = gradient.new_zeros(len(pairs), gradient.shape[-1])
        self._rows = rows.index_add_(0, index, gradient.flatten(0, 1))
        self._owner = torch.div(known, length, rounding_mode="floor")
        self._token = known % length

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The table."""
        return (self._table,)

    def gradients(self) -> PerExample:
        """Return the whole table for each example: for shared tables only."""
        whole = self._rows.new_zeros(self._examples, *self._table.shape)
        # Added, as the rows of zeros at the end have no pair of their own.
        whole.index_put_((self._owner, self._token), self._rows, accumulate=True)
        return {self._table: whole}

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return the roots of the sums of an example's squared row norms."""
        rows, share = norm_bounds_of(self._rows)
        squares = self._rows.new_zeros(self._examples, dtype=torch.float64)
        squares.index_add_(0, self._owner, rows.to(torch.float64).square())
        return {self._table: NormBounds(squares.sqrt(), share + 2.0**-40)}

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the table with every row's weighted sum."""
        scaled = self._rows * weights.to(self._rows.dtype)[self._owner][:, None]
        total = self._rows.new_zeros(self._table.shape)
        return {self._table: total.index_add_(0, self._token, scaled)}

    def leave_out(self, spoilt: Tensor) -> None:
        """Set rows of the examples' tokens to zero."""
        self._rows = torch.where(spoilt[self._owner][:, None], 0.0, self._rows)

    def forget(self) -> None:
        """Let go of the rows."""
        self._rows = self._rows.new_empty(0)
