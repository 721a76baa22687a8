r"""The sum of one lot in the mode ``exact``: one record at a time, and integers.

The model runs on one record at a time, so that nothing of one record can enter another's gradient,
not even through the order in which a kernel adds up a larger batch. A record's gradient is clipped,
rounded to whole multiples of a step, and added up in integers, which no order of summation rounds.
One record more or less moves the sum by exactly its own term.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.layers.instance_gradient import right_instance_gradients
from matrixdp.training.lots.batch import Losses, Sums, gradients_of, losses_of
from matrixdp.training.model.tensors import TensorState
from matrixdp.training.model.trainable import Trainable

__all__ = ["MOST_RECORDS", "ExactSum", "Quantiser"]

# A bound has 2**30 to 2**31 steps: what a coordinate is rounded by is far below any noise.
_BITS = 30

MOST_RECORDS = 2**22
"""Of so many records the sum is below 2**53 steps, and so a float64 without rounding."""


class Quantiser:
    """Clips the gradient of a record to a bound, and rounds it to whole steps.

    Parameters
    ----------
    bound : float
        The clip norm.
    size : int
        How many numbers a gradient has.

    Notes
    -----
    *Guarantee:* the integers q that `__call__` returns satisfy ``step |q| <= bound`` in exact
    arithmetic: the sum of their squares is compared as an integer, and what does not pass counts as
    zero. It passes whenever the gradient is finite. With v the scaled gradient before it is
    rounded, ``|q| <= |v| + sqrt(size) / 2``, and v is scaled to leave that much room.
    """

    def __init__(self, bound: float, size: int) -> None:
        self.step = 2.0 ** (math.frexp(bound)[1] - 1 - _BITS)
        steps = Fraction(bound) / Fraction(self.step)
        self._most_squares = math.floor(steps**2)
        self._length = float(steps) * (1.0 - 2.0**-40) - math.sqrt(size) / 2.0 - 1.0

    def __call__(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return integer multiples of the step, and whether they are those of a finite gradient.

        Parameters
        ----------
        gradients : sequence of Tensor
            The tensors of one record's gradient.
        """
        wide = [tensor.to(torch.float64) for tensor in gradients]
        # Relative to the largest number, so that neither steps nor squares overflow.
        unit = _together([tensor.abs().amax() for tensor in wide if tensor.numel()]).amax()
        unit = unit.clamp(min=self.step)
        shares = [tensor / unit.to(tensor.device) for tensor in wide]
        norm = torch.linalg.vector_norm(
            _together([torch.linalg.vector_norm(tensor) for tensor in shares])
        )
        # A norm of zero gives infinity, which is not the smaller one; NaN stays, and fails below.
        factor = torch.minimum(unit / self.step, self._length / norm)
        whole = [(tensor * factor.to(tensor.device)).round() for tensor in shares]
        # Below 2**31 each, or not finite: then the largest stands for all of them, and fails too.
        bounded = [tensor.nan_to_num(nan=2.0**32).clamp(-(2.0**32), 2.0**32) for tensor in whole]
        numbers = [tensor.to(torch.int64) for tensor in bounded]
        largest = _together([tensor.abs().amax() for tensor in numbers if tensor.numel()]).amax()
        squares = _together([tensor.square().sum() for tensor in numbers]).sum()
        # Squares of larger numbers would overflow, and so would the sum of many: then it may wrap
        # around to a small number. In float64 it is seen well before that.
        roughly = _together([tensor.square().sum() for tensor in bounded]).sum()
        whole_sum = (largest < 2**31) & (roughly < 2.0**62.5)
        sound = whole_sum & (squares <= self._most_squares)
        return [tensor * sound.to(tensor.device) for tensor in numbers], sound


def _together(numbers: Sequence[Tensor]) -> Tensor:
    """Return scalars as one tensor, on the device of the first: a group may be on two."""
    return torch.stack([tensor.to(numbers[0].device) for tensor in numbers])


class ExactSum:
    """Adds up the clipped gradients of a lot in whole steps.

    Parameters
    ----------
    model, losses, trainable, views, debug
        As in `ByLayer`.
    """

    def __init__(
        self, model: nn.Module, losses: Losses, trainable: Trainable, *, views: int, debug: bool
    ) -> None:
        self._model = model
        self._losses = losses
        self._trainable = trainable
        self._views = views
        self._debug = debug
        self._groups: list[list[nn.Parameter]] = [[] for _ in trainable.bounds]
        for parameter, group in trainable.groups.items():
            self._groups[group].append(parameter)
        self._quantisers = [
            Quantiser(bound, sum(parameter.numel() for parameter in group))
            for bound, group in zip(trainable.bounds, self._groups, strict=True)
        ]

    def __call__(self, records: Iterable[Any]) -> Sums:
        """Return the sum for each parameter in float64: a multiple of the step, not rounded.

        Parameters
        ----------
        records : iterable
            The batches of the lot, of one record each.
        """
        totals = {
            parameter: torch.zeros_like(parameter, dtype=torch.int64)
            for parameter in self._trainable
        }
        for record in records:
            self._add(totals, record)
        return {
            parameter: totals[parameter].to(torch.float64) * quantiser.step
            for quantiser, group in zip(self._quantisers, self._groups, strict=True)
            for parameter in group
        }

    def _add(self, totals: dict[nn.Parameter, Tensor], record: Any) -> None:
        """Add the gradient of a record."""
        state = TensorState(self._model)
        # Within an autocast around the whole loop torch keeps the casts of weights that earlier
        # records used, also after a step has changed the weights; and nothing that runs after the
        # record is to find its casts.
        torch.clear_autocast_cache()
        try:
            with right_instance_gradients(self._model):
                losses = losses_of(self._losses, record, 1, self._views)
                found = gradients_of(losses, list(totals))
        finally:
            torch.clear_autocast_cache()
        state.check()
        gradients = dict(zip(totals, found, strict=True))
        found_by_group = [
            quantiser([gradients[parameter] for parameter in group])
            for quantiser, group in zip(self._quantisers, self._groups, strict=True)
        ]
        # All of a record or nothing. Integers: zero times any of them is zero.
        finite = losses.detach().isfinite().all()
        sound = _together([*(each for _, each in found_by_group), finite]).all()
        for group, (numbers, _) in zip(self._groups, found_by_group, strict=True):
            for parameter, tensor in zip(group, numbers, strict=True):
                totals[parameter] += tensor * sound.to(tensor.device)
        if self._debug:
            self._check_finite(finite, gradients)

    def _check_finite(self, finite: Tensor, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Raise for debugging, and name the parameters."""
        wrong = [] if bool(finite) else ["losses"]
        wrong += [
            f"gradients of {self._trainable.names[parameter]!r}"
            for parameter, tensor in gradients.items()
            if not bool(tensor.isfinite().all())
        ]
        if wrong:
            raise InvalidParameterError(
                f"debug=True stopped the step: {' and '.join(wrong)} are not finite. Its budget is "
                "spent, and the model was not changed. Look for a division by zero or a logarithm "
                "of zero. Without debug=True these records add nothing, and nobody learns of them"
            )
