"""Weights with several uses that are products: tied tables and heads, layers called repeatedly.

The gradient of an example is the sum over all its uses, so its norm has terms for each pair of
them. With ``l_t`` and ``r_t`` the two factors at position t of any use, it is ``sum_t l_t r_t^T``,
and its squared norm ``sum_(t,s) (l_t . l_s) (r_t . r_s)``: the Gram form, over the positions of all
uses one after another. The left factor of an embedding is 1 at its token and 0 elsewhere, so a
product with it is a number that is looked up, and nothing is as large as the table.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from matrixdp.training.kernels.bounds import NormBounds
from matrixdp.training.layers.embedding import EmbeddingUse
from matrixdp.training.layers.gram import gram, gram_bounds
from matrixdp.training.layers.linear import LinearUse, gram_is_less
from matrixdp.training.layers.precision import factor_rounding
from matrixdp.training.layers.use import LayerUse, MeasuredUse, PerExample, norm_bounds_of

__all__ = ["TiedUse", "with_tied"]

_Product = LinearUse | EmbeddingUse


class TiedUse(LayerUse):
    """All uses of one weight, each of which is a linear layer or an embedding.

    Parameters
    ----------
    uses : sequence of LinearUse and EmbeddingUse
        At least one of them is a linear layer, or all of them have tokens of the same table.
    """

    def __init__(self, uses: Sequence[_Product]) -> None:
        self._uses = uses

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """The weight, and the biases of linear layers."""
        return tuple(dict.fromkeys(one for use in self._uses for one in use.parameters))

    def gradients(self) -> PerExample:
        """Return the gradient of every example."""
        return _added([use.gradients() for use in self._uses])

    def norm_bounds(self) -> dict[nn.Parameter, NormBounds]:
        """Return bounds of the norms of the sums, from Gram matrices over all positions."""
        weight = self._uses[0].weight
        dense = [use.factors() for use in self._uses if isinstance(use, LinearUse)]
        looked_up = [use for use in self._uses if isinstance(use, EmbeddingUse)]
        rights = [right for _, right in dense] + [use.outputs for use in looked_up]
        tokens = torch.cat([use.tokens for use in looked_up], 1) if looked_up else None
        left = torch.cat([factor for factor, _ in dense], 1) if dense else None
        # The types of these differ where autocast ran only some of the uses.
        wide = [right.to(_widest(rights)) for right in rights]
        rounding = max(factor_rounding(right) for right in rights)
        bounds = gram_bounds(
            _left_gram(left, tokens), gram(torch.cat(wide, 1)), sum(weight.shape), rounding
        )
        biases = _added([use.bias_gradients for use in self._uses if isinstance(use, LinearUse)])
        return {weight: bounds} | {bias: norm_bounds_of(part) for bias, part in biases.items()}

    def weighted_sum(self, weights: Tensor) -> PerExample:
        """Return the sum of the uses' sums."""
        return _added([use.weighted_sum(weights) for use in self._uses])

    def leave_out(self, spoilt: Tensor) -> None:
        """Set what the uses hold of some examples to zero."""
        for use in self._uses:
            use.leave_out(spoilt)

    def forget(self) -> None:
        """Let go of what the uses hold."""
        for use in self._uses:
            use.forget()


def with_tied(
    measured: Sequence[MeasuredUse], shared: Collection[nn.Parameter]
) -> list[MeasuredUse]:
    """Return uses with those of a weight that has several made one, where that is less work.

    A table is never written out for each example.

    Parameters
    ----------
    measured : sequence of MeasuredUse
        All uses, in a batch.
    shared : collection of Parameter
        The parameters with several of them.
    """
    found = list(measured)
    for weight in shared:
        mine = [one for one in found if any(weight is own for own in one.use.parameters)]
        uses = [one.use for one in mine if isinstance(one.use, _Product)]
        if not uses or len(uses) < len(mine) or any(use.weight is not weight for use in uses):
            continue
        parameters = {parameter for use in uses for parameter in use.parameters}
        others = [one for one in found if not any(one is other for other in mine)]
        if any(not parameters.isdisjoint(one.use.parameters) for one in others):
            continue
        positions = sum(use.positions for use in uses)
        table = any(isinstance(use, EmbeddingUse) for use in uses)
        if table or gram_is_less(positions, *weight.shape):
            tied = TiedUse(uses)
            name = " and ".join(dict.fromkeys(one.name for one in mine))
            found = [*others, MeasuredUse(name, tied, tied.norm_bounds())]
    return found


def _left_gram(dense: Tensor | None, tokens: Tensor | None) -> Tensor:
    """Return the Gram matrix of the left factors: numbers, and ones at tokens."""
    same = None
    if tokens is not None:
        same = (tokens[:, :, None] == tokens[:, None, :]).to(torch.float32)
    if dense is None:
        return same  # type: ignore[return-value]
    if tokens is None or same is None:
        return gram(dense)
    index = tokens[:, None, :].expand(-1, dense.shape[1], -1)
    across = dense.gather(2, index).to(torch.float32)
    above, below = torch.cat((gram(dense), across), 2), torch.cat((across.mT, same), 2)
    return torch.cat((above, below), 1)


def _widest(tensors: Sequence[Tensor]) -> torch.dtype:
    kind = tensors[0].dtype
    for tensor in tensors:
        kind = torch.promote_types(kind, tensor.dtype)
    return kind


def _added(parts: Sequence[PerExample]) -> PerExample:
    total = PerExample()
    for part in parts:
        for parameter, tensor in part.items():
            total[parameter] = total[parameter] + tensor if parameter in total else tensor
    return total
