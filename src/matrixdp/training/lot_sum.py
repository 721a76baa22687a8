"""The sum of one lot, batch by batch: every record counts once, whatever the loop does."""

import abc
import threading
from contextlib import AbstractContextManager, ExitStack

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.trainable import ModelState, Trainable
from matrixdp.training.uncompiled import check_still_uncompiled, uncompiled

__all__ = ["LotSum", "checked_losses"]


class LotSum(abc.ABC):
    """The sum of the clipped gradients of one lot; how it is formed depends on the mode.

    The model is watched only from a batch being handed out until its losses are accumulated, so
    that nothing else the user does with it is touched.

    Parameters
    ----------
    trainable : Trainable
        The parameters, their groups and bounds.
    views : int
        How many rows each example has.
    examples : int
        How many examples the lot has.
    debug : bool
        Whether `check` raises if a loss or a gradient is not finite.
    """

    largest_batch: int | None = None
    """The most records that may be handed out together, where that matters."""

    def __init__(self, trainable: Trainable, *, views: int, examples: int, debug: bool) -> None:
        self._trainable = trainable
        self._views = views
        self._debug = debug
        self._watching = ExitStack()
        # Threads must not hand out, or add, the same records twice.
        self._lock = threading.RLock()
        self._missing = examples
        self._batch: int | None = None  # the examples of the batch that is handed out
        self._handed_out = False
        self._ended = False
        self._state: ModelState = {}  # of the model when that batch was handed out

    @property
    @abc.abstractmethod
    def sums(self) -> dict[nn.Parameter, Tensor]:
        """The sum for each parameter that some example used."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raise if a layer mixes examples, or in debugging if something is not finite."""

    @abc.abstractmethod
    def _watch(self) -> AbstractContextManager[None]:
        """Follow the model within a block: a batch is handed out."""

    @abc.abstractmethod
    def _accumulate(self, losses: Tensor, examples: int) -> None:
        """Clip and add the gradients of examples, given one loss for each."""

    def begin(self) -> None:
        """Note that batches are handed out; a second time, records would count twice."""
        with self._lock:
            if self._handed_out:
                raise InvalidParameterError(
                    "the batches of this lot were handed out already, and each record may count "
                    "once: go through lot.batches(...) once, and call training.step()"
                )
            # Once for each lot and not for each batch: it goes through the whole model.
            self._trainable.check_unchanged()
            self._handed_out = True

    def expect(self, examples: int) -> None:
        """Watch the model from here on: a batch of so many examples is handed out."""
        with self._lock:
            if self._ended:
                raise InvalidParameterError(
                    "this lot was given up when another one was drawn, and its step is spent: go "
                    "through the batches of the new lot"
                )
            self.check_accumulated()
            self._trainable.forget_gradients()
            self._state = self._trainable.state()
            self._watching.enter_context(uncompiled())
            self._watching.enter_context(self._watch())
            self._batch = examples

    def end(self) -> None:
        """Hand out no more batches; one that is under way can no longer be accumulated."""
        with self._lock:
            self._watching.close()
            self._batch = None
            self._ended = True

    def check_accumulated(self) -> None:
        """Raise if the last batch was handed out and its losses were not accumulated."""
        if self._batch is not None:
            raise InvalidParameterError(
                "the losses of the last batch were not accumulated: call "
                "training.accumulate(losses) once for each batch"
            )

    def check_complete(self) -> None:
        """Raise unless every example of the lot was accumulated."""
        self.check_accumulated()
        if self._missing:
            raise InvalidParameterError(
                "the lot is not complete: go through all of lot.batches(...) and accumulate the "
                "losses of each batch before training.step()"
            )

    def add(self, losses: Tensor) -> None:
        """Clip and add the gradients of the batch that was handed out.

        Raises
        ------
        InvalidParameterError, ShapeError
            If there is no such batch, or these are not its losses.
        """
        # Before anything else, so that the call can be made again.
        if not torch.is_grad_enabled():
            raise InvalidParameterError(
                "gradients are disabled: compute the losses and call training.accumulate(losses) "
                "outside of torch.no_grad() and torch.inference_mode()"
            )
        with self._lock:
            if self._batch is None:
                raise InvalidParameterError(
                    "there is no batch whose losses these are: call training.accumulate(losses) "
                    "once for each batch, within `for ... in lot.batches(...)`"
                )
            examples = self._batch
            # Before the backward pass, so that the call can be made again with the right ones.
            by_example = checked_losses(losses, examples, self._views)
            self._trainable.check_state(self._state)
            check_still_uncompiled()
            # Before anything is added: an interruption may come when a part of it was, and the
            # same records would then count twice if they could be accumulated again.
            self._batch = None
            try:
                self._accumulate(by_example, examples)
                # Hooks of the backward pass, and functions with one of their own, may write too.
                self._trainable.check_state(self._state)
            finally:
                self._watching.close()
            self._missing -= examples


def checked_losses(losses: Tensor, examples: int, views: int) -> Tensor:
    """Return one loss for each example, or raise if they are not the losses of the batch."""
    if not isinstance(losses, Tensor):
        raise InvalidParameterError(f"losses is a {type(losses).__name__}: pass a tensor")
    if losses.ndim == 0:
        raise ShapeError(
            "losses were reduced to one number, but each example's gradient is clipped by itself: "
            'use reduction="none", and pass one loss per example'
        )
    if losses.ndim > 1 or len(losses) not in (examples, examples * views):
        raise ShapeError(
            f"losses have shape {tuple(losses.shape)}, but the batch has {examples} examples of "
            f"{views} rows each: pass one loss per example or per row, for instance "
            "losses.flatten(1).mean(1)"
        )
    # As sum().expand(n) makes it: the gradient of every example would be that of all of them.
    if len(losses) > 1 and losses.stride(0) == 0:
        raise InvalidParameterError(
            "losses are one number that was expanded, but each example's gradient is clipped by "
            'itself: use reduction="none", and pass one loss per example'
        )
    if losses.is_complex():
        raise InvalidParameterError(
            f"losses are of type {losses.dtype}, which has no order: pass real numbers, for "
            "instance losses.abs()"
        )
    if not losses.requires_grad:
        raise InvalidParameterError(
            "losses have no gradient: compute them from the model's outputs, not under "
            "torch.no_grad() and not detached"
        )
    return losses if len(losses) == examples else losses.reshape(examples, views).mean(1)
