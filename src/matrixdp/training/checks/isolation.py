"""The check that the loss of a record depends on that record alone, on made-up records."""

import torch
from torch import Tensor

from matrixdp.errors import InvalidParameterError
from matrixdp.training.checks.program import RECORDS, Program

__all__ = ["ALONE", "ROUNDING", "check_isolation"]

# How far losses may differ by rounding, as a share of the largest: with 32 and with 16 bits.
ROUNDING = {False: 1e-3, True: 5e-2}
ALONE = "Or use mode='exact', which runs each record alone"


def check_isolation(program: Program) -> None:
    """Raise if the loss of a made-up record depends on others in its batch.

    Raises
    ------
    InvalidParameterError
        Which says where records were mixed.
    """
    _check_gradients(program)
    _check_losses(program)


def _check_gradients(program: Program) -> None:
    """Raise unless the loss of one record has a gradient in the rows of that record alone."""
    run = program.whole
    if not run.losses.requires_grad:
        return
    # What has the same shape for fewer records, such as positions, is shared by all of them.
    outputs = [
        output
        for output, batched in zip(run.outputs, program.batched, strict=False)
        if batched and output.tensor.requires_grad
    ]
    inputs = [
        tensor for tensor in run.inputs if tensor.ndim and len(tensor) and not len(tensor) % RECORDS
    ]
    followed = [*inputs, *(output.tensor for output in outputs)]
    if not followed:
        return
    # How many records have a gradient in each number.
    reached: list[Tensor] = [torch.zeros_like(tensor, dtype=torch.int8) for tensor in followed]
    foreign = [False] * len(inputs)
    for record in range(RECORDS):
        mask = torch.zeros_like(run.losses)
        mask[record] = 1.0
        found = torch.autograd.grad(
            (run.losses * mask).sum(), followed, allow_unused=True, retain_graph=True
        )
        for index, tensor in enumerate(found):
            if tensor is not None:
                # Zero times infinity is no number, and tells nothing.
                here = (tensor != 0) & tensor.isfinite()
                reached[index] += here
                if index < len(inputs):
                    others = here.unflatten(0, (RECORDS, -1))
                    foreign[index] |= bool(others[:record].any() | others[record + 1 :].any())
    mixed = [bool((tensor > 1).any()) for tensor in reached]
    if any(mixed) or any(foreign):
        # The last one on the way forward: what follows it has mixed the records.
        last = max((index for index, one in enumerate(mixed) if one), default=0) - len(inputs)
        after = f"after {outputs[last].described}" if last >= 0 else "in front of all layers"
        raise InvalidParameterError(
            f"the loss of a record depends on other records of its batch: they mix {after}. Let "
            "everything treat the rows of a batch by themselves: no means, products or decisions "
            "over the first axis, and batch_first=True for attention and recurrent layers. "
            f"{ALONE}"
        )


def _check_losses(program: Program) -> None:
    """Raise unless the losses of records are the same in other batches and in another order."""
    losses = program.whole.losses.detach().double()
    finite = losses[losses.isfinite()]
    scale = float(finite.abs().max()) if len(finite) else 1.0
    allowed = ROUNDING[program.coarse] * max(scale, 1e-6)
    others = [([record], program.alone[record].loss) for record in range(RECORDS)]
    others += [(records, program.run(records).losses) for records in ([3, 2, 1, 0], [2, 0])]
    different = 0
    for records, values in others:
        found, expected = values.detach().double(), losses[records]
        same = (found - expected).abs() <= allowed
        same |= ~found.isfinite() & ~expected.isfinite()
        different += not bool(same.all())
    # Once may be a layer that rounds, on the edge between two numbers.
    if different > 1:
        raise InvalidParameterError(
            "the loss of a record is another one when the record is alone, or in a batch of "
            "another size or order. Look for positions or numbers by row, such as pe[: len(x)] in "
            "a batch-first model, padding that depends on the longest record of a batch, and for "
            f"decisions and random numbers over the batch. {ALONE}"
        )
