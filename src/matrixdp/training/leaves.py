"""The tensors that a backward pass ends at: none of them may be trained besides the model."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.tapping import ROOT

__all__ = ["without_gradients"]


@contextmanager
def without_gradients(
    losses: Tensor, trained: Collection[Tensor], rows: Collection[int]
) -> Iterator[None]:
    """Let a backward pass within the block leave no gradient anywhere, or raise before it.

    Parameters of the model are not looked at: what they get is seen afterwards. Inputs may require
    a gradient, as for adversarial examples, and have after the block the one that they had before.
    In a batch of one record any leaf of length one could be such an input.

    Parameters
    ----------
    losses : Tensor
        What the backward pass begins with.
    trained : collection of Tensor
        The parameters of the model.
    rows : collection of int
        How long the first axis of an input may be.

    Raises
    ------
    InvalidParameterError
        Which gives the shape of the tensor.
    """
    inputs = [leaf for leaf in _leaves(losses) if leaf is not ROOT and leaf not in trained]
    for leaf in inputs:
        if isinstance(leaf, nn.Parameter) or not leaf.ndim or len(leaf) not in rows:
            raise InvalidParameterError(
                f"losses depend on a tensor of shape {tuple(leaf.shape)} that requires a gradient "
                "and is not a parameter of the model: torch would give it a gradient that is "
                "neither clipped nor noisy. Make it a part of the model, or detach() it"
            )
    former = [leaf.grad for leaf in inputs]
    for leaf in inputs:
        leaf.grad = None  # not added to in place
    try:
        yield
    finally:
        for leaf, gradient in zip(inputs, former, strict=True):
            leaf.grad = gradient


def _leaves(losses: Tensor) -> list[Tensor]:
    """Return all tensors at the ends of a graph."""
    # Any: torch has no types for what a node has, apart from all of them having this.
    waiting: list[Any] = [losses.grad_fn]
    seen = set(waiting)
    found = []
    while waiting:
        node = waiting.pop()
        following = node.next_functions
        if not following and hasattr(node, "variable"):
            found.append(node.variable)
        for one, _ in following:
            if one is not None and one not in seen:
                seen.add(one)
                waiting.append(one)
    return found
