"""The choice of a way to form gradients: the first one whose clipped gradients are autograd's."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.training.checks.larger import LargerBatches
from matrixdp.training.checks.program import RECORDS, Program
from matrixdp.training.layers.expanded import NotExpandableError
from matrixdp.training.lots.batch import BatchGradients
from matrixdp.training.lots.by_layer import ByLayer
from matrixdp.training.lots.by_record import ByRecord
from matrixdp.training.lots.clipping import ClippedSum
from matrixdp.training.model.trainable import Trainable

__all__ = ["Chosen", "first_right"]

# How far gradients may differ by rounding, as a share of their norm: with 32 and with 16 bits. On a
# GPU every factor of 32 bits is 2**-9 smaller already, for TF32.
_ROUNDING = {False: 3e-3, True: 0.2}
# How much larger than a norm its upper bound may be: Gram matrices cancel.
_SLACK = 1.5
# Of other sizes, and in another order: a model may sort its rows, and made-up ones come sorted.
_ORDERS = (range(RECORDS), range(RECORDS - 1), [2, 0, 3, 1])


class Chosen(NamedTuple):
    """A way to form gradients.

    Attributes
    ----------
    name : str
        How the gradients are formed.
    gradients : BatchGradients
        The way.
    refused : mapping of str to str
        The ways before it, and why they are not right for this model.
    larger : LargerBatches or None
        The check of larger batches, where records run together.
    """

    name: str
    gradients: BatchGradients
    refused: Mapping[str, str]
    larger: LargerBatches | None = None


def first_right(
    ways: Mapping[str, BatchGradients], trainable: Trainable, programs: Sequence[Program]
) -> Chosen:
    """Return the first of some ways to form gradients that is right for all programs.

    Raises
    ------
    InvalidParameterError
        If none is.
    """
    refused: dict[str, str] = {}
    for name, gradients in ways.items():
        reason = _settled(gradients, trainable, programs)
        if reason is None:
            return Chosen(name, gradients, refused)
        refused[name] = reason
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise InvalidParameterError(
        f"the gradients of single records cannot be formed ({reasons}): use mode='exact'"
    )


def _settled(
    gradients: BatchGradients, trainable: Trainable, programs: Sequence[Program]
) -> str | None:
    """Say why a way is not right, or return None, after it has found out how to run its layers.

    Weights that are not only broadcast cannot be expanded: their layers are run again instead.
    """
    while True:
        try:
            reason = _reason(gradients, trainable, programs)
        except NotExpandableError as error:
            reason, layers = str(error), set(error.sources)
        else:
            layers = gradients.tracer.known.expanded if isinstance(gradients, ByLayer) else set()
        if reason is None:
            return None
        if not (isinstance(gradients, ByLayer) and gradients.tracer.unexpand(layers)):
            return reason


def _reason(
    gradients: BatchGradients, trainable: Trainable, programs: Sequence[Program]
) -> str | None:
    """Say why a way is not right, or return None."""
    reasons = []
    for program in programs:
        for records in _ORDERS:
            try:
                with program.draws(records):
                    clipped = gradients(program.batch(records), len(records))
            except (torch.OutOfMemoryError, NotExpandableError):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, this way does not go
                return f"{type(error).__name__}: {error}"
            # One record after another, they are autograd's own.
            if not (isinstance(gradients, ByRecord) and not gradients.at_once):
                reason = _difference(clipped, trainable, program, records)
                reasons += [reason] if reason else []
    # Once may be a layer that rounds, on the edge between two numbers.
    return reasons[0] if len(reasons) > 1 else None


def _difference(
    found: ClippedSum, trainable: Trainable, program: Program, records: Sequence[int]
) -> str | None:
    """Say how a clipped sum of some records differs from that of autograd's gradients."""
    rounding = _ROUNDING[program.coarse]
    taken = found.norms.double().cpu()
    norms = torch.stack([_norms(program, trainable, record) for record in records], dim=1)
    bounds = torch.tensor(trainable.bounds, dtype=torch.float64, device="cpu")[:, None]
    # Records that are not finite add nothing, in any group.
    finite = [bool(program.alone[record].loss.isfinite().all()) for record in records]
    sound = norms.isfinite().all(0) & torch.tensor(finite, device="cpu")
    low, high = norms * (1.0 - rounding), norms * _SLACK + 1e-6 * bounds
    if bool((sound & ((taken < low) | (taken > high) | ~taken.isfinite())).any()):
        return "the norm of a record's gradient is another one"
    shares = torch.where(sound, (bounds / taken.clamp(min=1e-300)).clamp(max=1.0), 0.0)
    allowed = rounding * (shares * norms.where(sound, 0.0)).sum(1) + 1e-12
    for parameter, name in trainable.names.items():
        group = trainable.groups[parameter]
        off = -found.sums.get(parameter, torch.zeros_like(parameter)).double()
        for share, record in zip(shares[group].tolist(), records, strict=True):
            if share:
                off = off + share * program.alone[record].gradients[parameter]
        if float(torch.linalg.vector_norm(off)) > float(allowed[group]):
            return f"the gradient of parameter {name!r} is another one"
    return None


def _norms(program: Program, trainable: Trainable, record: int) -> Tensor:
    """Return the norms of a record's gradient, by group."""
    squares = torch.zeros(len(trainable.bounds), dtype=torch.float64, device="cpu")
    for parameter, tensor in program.alone[record].gradients.items():
        squares[trainable.groups[parameter]] += tensor.square().sum().cpu()
    return squares.sqrt()
