"""A batch of records, and the losses that the user's function has for it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, MatrixDPError, ShapeError
from matrixdp.training.lots.clipping import ClippedSum

__all__ = ["BatchGradients", "Losses", "Sums", "called", "gradients_of", "losses_of", "widened"]

Losses = Callable[..., Tensor]
"""One loss for each record or row, given a batch; it has no side effects."""


Sums = dict[nn.Parameter, Tensor]
"""The sum of a lot's clipped gradients in float64, for each parameter that some record used."""


class BatchGradients(Protocol):
    """A way to form the clipped gradients of the records in a batch.

    Attributes
    ----------
    at_once : bool
        Whether all of them run at once, and not one after another.
    """

    at_once: bool

    def __call__(
        self, batch: Any, examples: int, counts: Tensor | None = None, *, captured: bool = False
    ) -> ClippedSum:
        """Return the clipped sum of a batch of so many records.

        Records add something only where ``counts`` is not zero. A graph is ``captured`` of what
        this does, which cannot wait for its device.
        """


def losses_of(
    losses: Losses,
    batch: Any,
    examples: int,
    views: int,
    per_loss: int | None = None,
    *,
    alone: bool | None = None,
) -> Tensor:
    """Return one loss for each record of a batch: the mean over its views.

    It need not have a gradient: of some records a loss may be constant. What is clipped alone may
    have fewer losses than rows, where losses leave out some by what these are; it has one loss
    then, their mean, or zero without any.

    Parameters
    ----------
    losses : callable
        The user's.
    batch : any
        As the data set's items are collated.
    examples, views : int
        How many records the batch has, and how many rows each of them.
    per_loss : int, optional
        Of how many rows each loss is, 1 or ``views``, once that is known: losses that leave out
        rows may be as many as there would be of the other kind.
    alone : bool, optional
        Whether all of them are clipped together; by default if there is one record.

    Raises
    ------
    InvalidParameterError, ShapeError
        If what it returns is not one loss for each record or row.
    """
    # Within an autocast around the whole loop, torch keeps the casts of weights after a step.
    torch.clear_autocast_cache()
    found = called(losses, batch)
    if not isinstance(found, Tensor):
        raise InvalidParameterError(
            f"losses returns a {type(found).__name__}: return a tensor with one loss per record"
        )
    alone = examples == 1 if alone is None else alone
    if alone and found.ndim == 1 and len(found) < examples * views:
        return found.sum()[None] / max(len(found), 1)
    expected = (1, views) if per_loss is None else (per_loss,)
    wrong = _wrong(found, [examples * views // rows for rows in expected], alone=alone)
    if wrong is None:
        return found if len(found) == examples else found.reshape(examples, views).mean(1)
    if alone and not found.requires_grad:
        # A constant where all rows are left out may have any form: nobody must learn of it.
        return torch.zeros(1, device=found.device)
    raise wrong


def _wrong(found: Tensor, numbers: Sequence[int], *, alone: bool) -> MatrixDPError | None:
    """Return an error unless some losses are one number for each row, or each record."""
    if found.ndim == 0:
        return ShapeError(
            "losses returns one number, but the gradient of each record is clipped by itself: use "
            'reduction="none", and return one loss per record'
        )
    if found.ndim > 1 or len(found) not in numbers:
        return ShapeError(
            f"losses returns shape {tuple(found.shape)} for a batch of {max(numbers)} rows: return "
            "one loss per record or per row, for instance losses.flatten(1).mean(1)"
        )
    # As sum().expand(n) makes it: the gradient of every record would be that of all of them.
    if not alone and len(found) > 1 and found.stride(0) == 0:
        return InvalidParameterError(
            "losses returns one number that was expanded, but the gradient of each record is "
            'clipped by itself: use reduction="none", and return one loss per record'
        )
    if not found.is_floating_point():
        return InvalidParameterError(
            f"losses returns type {found.dtype}, and a loss is a real number: return floats, for "
            "instance losses.abs() of complex numbers"
        )
    return None


def called(losses: Losses, batch: Any) -> Tensor:
    """Return what losses make of a batch: the items of a tuple or list one by one, or all of it."""
    return losses(*batch) if isinstance(batch, tuple | list) else losses(batch)


def gradients_of(losses: Tensor, parameters: Sequence[nn.Parameter]) -> Sequence[Tensor]:
    """Return the gradients of the losses of one record by plain autograd; zero where constant."""
    if not losses.requires_grad:
        return [torch.zeros_like(parameter) for parameter in parameters]
    return torch.autograd.grad(losses.sum(), parameters, allow_unused=True, materialize_grads=True)


def widened(sums: Mapping[nn.Parameter, Tensor]) -> Sums:
    """Return sums in float64, by one launch for all of them."""
    wide = {
        parameter: torch.empty_like(part, dtype=torch.float64) for parameter, part in sums.items()
    }
    if wide:
        with torch.no_grad():
            torch._foreach_copy_(list(wide.values()), list(sums.values()))
    return wide
