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
    never written out for each example, unless a layer without a rule uses it as well.

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
        self.weight = cast("nn.Parameter", module.weight)
        self.tokens = tokens
        gradient = outputs.to(torch.float32)
        if module.padding_idx is not None:
            # The row of the padding token is constant: torch gives it no gradient either. A
            # negative number counts from the end.
            padding = tokens == module.padding_idx % len(self.weight)
            gradient = gradient.masked_fill(padding[..., None], 0.0)
        self.outputs = gradient
        # Of every row, once those of one token are joined.
        self._owner: Tensor | None = None
        self._examples = len(tokens)

    @property
    def positions(self) -> int:
        """How many positions an example has."""
        return self.tokens.shape[1]

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The table."""
        return (self.weight,)

    def gradients(self) -> PerExample:
        """Return the whole table for each example: where it has uses of other kinds as well."""
        whole = self.outputs.new_zeros(len(self.tokens), *self.weight.shape)
        owner = torch.arange(len(self.tokens), device=self.tokens.device)[:, None]
        whole.index_put_((owner.expand_as(self.tokens), self.tokens), self.outputs, accumulate=True)
        return {self.weight: whole}

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return the roots of the sums of an example's squared row norms.

        What is held from then on are those rows. The sum is formed from them, as large terms that
        cancel would leave another remainder if they were added up in another order.
        """
        owner = self._join_rows()
        rows, share = norm_bounds_of(self.outputs)
        squares = self.outputs.new_zeros(self._examples, dtype=torch.float64)
        squares.index_add_(0, owner, rows.to(torch.float64).square())
        return {self.weight: NormBounds(squares.sqrt(), share + 2.0**-40)}

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the table with every row's weighted sum."""
        weights = weights.to(self.outputs.dtype)
        scale = weights[:, None] if self._owner is None else weights[self._owner]
        scaled = (self.outputs * scale[..., None]).flatten(0, -2)
        total = self.outputs.new_zeros(self.weight.shape)
        return {self.weight: total.index_add_(0, self.tokens.flatten(), scaled)}

    def leave_out(self, spoilt: Tensor) -> None:
        """Set rows of the examples' tokens to zero."""
        left_out = spoilt[:, None] if self._owner is None else spoilt[self._owner]
        self.outputs = torch.where(left_out[..., None], 0.0, self.outputs)

    def forget(self) -> None:
        """Let go of the rows."""
        self.outputs = self.outputs.new_empty(0)

    def _join_rows(self) -> Tensor:
        """Add up the gradients of each pair of an example and a token; return whose rows are."""
        tokens, gradient, length = self.tokens, self.outputs, len(self.weight)
        first = torch.arange(len(tokens), device=tokens.device)[:, None]
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
        self.outputs = rows.index_add_(0, index, gradient.flatten(0, 1))
        self._owner = torch.div(known, length, rounding_mode="floor")
        self.tokens = known % length
        return self._owner
