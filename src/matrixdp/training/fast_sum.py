"""The sum of one lot in the mode ``fast``: batches of any size, and floats."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.clipping import clipped_sum
from matrixdp.training.layers.use import KeptGradients, NormBounds
from matrixdp.training.lot_sum import LotSum
from matrixdp.training.recording import MeasuredUse, Recording
from matrixdp.training.trainable import Trainable

__all__ = ["FastLotSum", "all_finite", "recorded_uses"]


class _Evidence(NamedTuple):
    """What tells whether a batch was finite: small tensors, read once in a step."""

    losses: Tensor
    norms: Tensor
    layers: Sequence[tuple[str, Mapping[nn.Parameter, NormBounds] | None]]
    mixed: Sequence[tuple[str, Tensor]]


class FastLotSum(LotSum):
    """The sum of clipped gradients in float32, from one backward pass for each batch.

    Parameters
    ----------
    recording : Recording
        Watches the model.
    trainable, views, examples
        As in `LotSum`.
    """

    def __init__(
        self, recording: Recording, trainable: Trainable, *, views: int, examples: int
    ) -> None:
        super().__init__(trainable, views=views, examples=examples)
        self._recording = recording
        self._evidence: list[_Evidence] = []
        self._sums: dict[nn.Parameter, Tensor] = {}

    @property
    def sums(self) -> dict[nn.Parameter, Tensor]:
        """The sum for each parameter that some example used, in float32."""
        return self._sums

    @contextmanager
    def _watch(self) -> Iterator[None]:
        # The recording last, so that it finds what the layers return then.
        with self._trainable.right_gradients(), self._recording.on():
            yield

    def _accumulate(self, losses: Tensor, examples: int) -> None:
        uses = recorded_uses(self._recording, self._trainable, losses, examples, self._views)
        self._watching.close()
        self._clip(uses, losses.detach())

    def _clip(self, uses: Sequence[MeasuredUse], losses: Tensor) -> None:
        clipped = clipped_sum(
            uses, self._trainable.groups, self._trainable.bounds, half=self._recording.half
        )
        # In float32 whatever the model's type is: 16 bits would lose small examples in the sum.
        for parameter, total in clipped.sums.items():
            if parameter in self._sums:
                self._sums[parameter] += total
            else:
                self._sums[parameter] = total.to(torch.float32)
        # Only names and norms are kept: the uses hold the activations of the batch.
        layers = [(use.name, use.norm_bounds) for use in uses]
        mixed = [
            (one.name, one.use.mixed)
            for one in uses
            if isinstance(one.use, KeptGradients) and one.use.mixed is not None
        ]
        self._evidence.append(_Evidence(losses, clipped.norms, layers, mixed))

    def finite(self, matrices: Sequence[Tensor]) -> Tensor:
        """Return whether all losses, norms and sums are finite."""
        return all_finite([*matrices, *(part for batch in self._evidence for part in batch[:2])])

    def check_finite(self, finite: Tensor) -> None:
        """Raise if a loss, a norm or a sum is not finite, and name the layer."""
        if not bool(finite):
            self._check_mixed()
            raise InvalidParameterError(
                f"the step was refused: {self._first_not_finite()} not finite. Its budget is "
                "spent, and the model was not changed. Look for a division by zero, a logarithm "
                "of zero or a learning rate that is too large. Norms above about 1e19 cannot be "
                "formed in float32 either: scale such losses down"
            )

    def _check_mixed(self) -> None:
        """Raise if a layer that was run again did something else then."""
        for name, mixed in (one for batch in self._evidence for one in batch.mixed):
            if bool(mixed.any()):
                raise InvalidParameterError(
                    f"the step was refused: {_subject(name)} returns something else for an example "
                    "alone than for the same example in the batch, so that examples may mix. Its "
                    "budget is spent, and the model was not changed. Let the layer treat every row "
                    "by itself, without means or decisions over the batch, random numbers, and "
                    "what it keeps from call to call; run it in float32 if it rounds or compares "
                    "numbers of 16 bits; or use mode='exact'"
                )

    def _first_not_finite(self) -> str:
        """Name the layer: the first one on the way back from the losses."""
        # Slow, with a wait for every layer, but only on the way to an error.
        for batch in self._evidence:
            subject = "losses and" if not batch.losses.isfinite().all() else ""
            for name, bounds in batch.layers:
                if bounds is not None and not all(_finite(part) for part in bounds.values()):
                    return f"{subject} gradients of {_subject(name)} are".strip()
            if not batch.norms.isfinite().all():
                shared = sorted({name for name, bounds in batch.layers if bounds is None})
                return f"{subject} gradients of one of the layers {shared!r} are".strip()
            if subject:
                return "losses are"
        return "the sum of gradients is"


def recorded_uses(
    recording: Recording, trainable: Trainable, losses: Tensor, examples: int, views: int
) -> list[MeasuredUse]:
    """Run the backward pass of a batch, and return the uses of all layers that are trained.

    Raises
    ------
    InvalidParameterError
        If a gradient is missing, or appears where no layer accounts for it.
    """
    uses = recording.backward(losses, examples * views, examples)
    trainable.check_no_gradients()
    if not uses:
        raise InvalidParameterError(
            "losses do not depend on any layer that is trained: compute them from the model's "
            "outputs for this batch"
        )
    return uses


def all_finite(parts: Sequence[Tensor]) -> Tensor:
    """Return whether all numbers are finite, without waiting for the device."""
    # A sum is finite only if its terms are; float64, so that none overflows on the way.
    totals = [part.sum(dtype=torch.float64) for part in parts]
    device = totals[0].device
    # Another device is waited for: what has not arrived could pass for finite.
    return torch.stack([total.to(device) for total in totals]).sum().isfinite()


def _subject(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


def _finite(bounds: NormBounds) -> bool:
    return bool(bounds.values.isfinite().all())
