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

__all__ = ["FastLotSum", "mixing_layers", "recorded_uses"]


class _Evidence(NamedTuple):
    """What tells whether a batch was finite: small tensors, kept for debugging alone."""

    losses: Tensor
    norms: Tensor
    layers: Sequence[tuple[str, Mapping[nn.Parameter, NormBounds] | None]]


class FastLotSum(LotSum):
    """The sum of clipped gradients in float64, from one backward pass for each batch.

    Parameters
    ----------
    recording : Recording
        Watches the model.
    trainable, views, examples, debug
        As in `LotSum`.
    """

    def __init__(
        self, recording: Recording, trainable: Trainable, *, views: int, examples: int, debug: bool
    ) -> None:
        super().__init__(trainable, views=views, examples=examples, debug=debug)
        self._recording = recording
        self._evidence: list[_Evidence] = []
        self._mixed: dict[str, Tensor] = {}
        self._sums: dict[nn.Parameter, Tensor] = {}

    @property
    def sums(self) -> dict[nn.Parameter, Tensor]:
        """The sum for each parameter that some example used, in float64."""
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
            *(uses, self._trainable.groups, self._trainable.bounds),
            half=self._recording.half,
            counts=losses.isfinite(),
        )
        # In float64 whatever the model's type is. The spacing of float32 doubles at a power of two,
        # and batches of just above half of it would move a sum beyond it twice as fast as one
        # below: the distance of neighbours would double, and again at the next power.
        for parameter, total in clipped.sums.items():
            if parameter in self._sums:
                self._sums[parameter] += total
            else:
                self._sums[parameter] = total.to(torch.float64)
        for name, mixed in mixing_layers(uses, losses):
            self._mixed[name] = mixed | self._mixed[name] if name in self._mixed else mixed
        if self._debug:
            # Only names and norms are kept: the uses hold the activations of the batch.
            layers = [(use.name, use.norm_bounds) for use in uses]
            self._evidence.append(_Evidence(losses, clipped.norms, layers))

    def check(self) -> None:
        """Raise if a layer mixes examples, or in debugging if something is not finite."""
        # Waits for the device, but only for layers that were run again.
        for name, mixed in self._mixed.items():
            if bool(mixed):
                raise InvalidParameterError(
                    f"the step was refused: {_subject(name)} returns something else for an example "
                    "alone than for the same example in the batch, so that examples may mix. Its "
                    "budget is spent, and the model was not changed. Let the layer treat every row "
                    "by itself, without means or decisions over the batch, random numbers, and "
                    "what it keeps from call to call; run it in float32 if it rounds or compares "
                    "numbers of 16 bits; or use mode='exact'"
                )
        subject = self._first_not_finite()
        if subject is not None:
            raise InvalidParameterError(
                f"debug=True stopped the step: {subject} not finite. Its budget is spent, and the "
                "model was not changed. Look for a division by zero or a logarithm of zero. Norms "
                "above about 1e19 cannot be formed in float32 either: scale such losses down. "
                "Without debug=True these records add nothing, and nobody learns of them"
            )

    def _first_not_finite(self) -> str | None:
        """Name the layer: the first one on the way back from the losses."""
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
        return None


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


def mixing_layers(uses: Sequence[MeasuredUse], losses: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Return layers that were run again, each with whether it did something else for an example.

    Examples whose loss is not finite are not asked: they add nothing, and the step is not to be
    refused because of them.
    """
    for name, use, _ in uses:
        if isinstance(use, KeptGradients) and use.mixed is not None:
            yield name, (use.mixed & losses.isfinite().to(use.mixed.device)).any()


def _subject(name: str) -> str:
    return f"layer {name!r}" if name else "the model"


def _finite(bounds: NormBounds) -> bool:
    return bool(bounds.values.isfinite().all())
