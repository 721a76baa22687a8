"""Private training: a loop that stays the user's own, and a plan that it cannot exceed."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn, optim

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer
from matrixdp.training.account import State, StepAccount
from matrixdp.training.arguments import (
    check_callable,
    check_kinds,
    check_mode,
    check_not_inference,
    checked_shapes,
    checked_spending_path,
)
from matrixdp.training.exact_sum import ExactLotSum
from matrixdp.training.fast_sum import FastLotSum
from matrixdp.training.guarantee import Mode, TrainingGuarantee
from matrixdp.training.layers.table import check_layer, check_layer_alone
from matrixdp.training.lot_sum import LotSum
from matrixdp.training.lots import Lot
from matrixdp.training.noisy_step import NoisyStep
from matrixdp.training.padded import Losses, PaddedLotSum
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.recording import Recording, stop_watching
from matrixdp.training.records import RecordSource, record_source, tensor_records
from matrixdp.training.sampling import Coins, SecureCoins, SeededCoins, drawn_records
from matrixdp.training.step_noise import StepNoise
from matrixdp.training.trainable import Trainable

__all__ = ["PrivateTraining"]


class PrivateTraining:
    """Trains a model privately, step by step, as a plan says.

    The model stays what it is: nothing is stored in it, and outside of the loop over batches it
    runs as always. Gradients belong to the training: they are set in `step` and removed again.

    Parameters
    ----------
    model : nn.Module
        Any model whose layers treat the rows of a batch independently.
    optimizer : optim.Optimizer
        Over the model's parameters; any but LBFGS and SparseAdam.
    plan : TrainingPlan
        What is done, and how much noise that needs.
    seed : int, optional
        For experiments: lots and noise come from this seed, on the model's device, and protect
        nothing. Without it lots come from the operating system's randomness and noise is exact.
    record : path, optional
        A file that counts each step before its lot is drawn. Needed to resume a release from a
        checkpoint; see `load_state_dict`.
    mode : {"fast", "exact"}, optional
        How gradients are added up. ``fast``, the default, runs whole batches; its guarantee states
        what is assumed of float arithmetic. ``exact`` runs one record at a time and adds up
        integers, so that the guarantee holds for the program as it is, at many times the cost.
    noise : mapping of str to Covariance, optional
        Noise of another shape for the layers named. The matrix of a layer is its weight as outputs
        times inputs, with the bias as the last column. A covariance needs at least
        ``plan.noise_scale`` in every direction: use ``covariance.rescaled_for(sensitivity,
        plan.step_budget)``.
    debug : bool, optional
        Raise in a step if a loss or a gradient is not finite, and name the layer. This tells that
        such a record is there, without noise: for public data. Otherwise such records add nothing.

    Raises
    ------
    InvalidParameterError
        If a layer mixes examples or an argument is wrong; the message names it.
    BudgetExceededError
        If a covariance is too small.

    Notes
    -----
    *Guarantee:* see `guarantee`; it holds for everything that is computed from the model and the
    optimiser after any number of steps. Losses and anything else that the loop computes from the
    records themselves are not covered.

    Examples
    --------
    >>> import torch
    >>> from matrixdp.training import PrivateTraining, TrainingPlan
    >>> inputs, targets = torch.randn(100, 3), torch.randint(0, 2, (100,))
    >>> model = torch.nn.Linear(3, 2)
    >>> plan = TrainingPlan(
    ...     records=100, lot_size=20, steps=5, clip_norm=1.0, epsilon=4.0, delta=1e-3
    ... )
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> training = PrivateTraining(model, optimizer, plan)
    >>> for lot in training.lots((inputs, targets)):
    ...     for rows, labels in lot.batches(16):
    ...         losses = torch.nn.functional.cross_entropy(model(rows), labels, reduction="none")
    ...         training.accumulate(losses)
    ...     training.step()
    >>> training.steps_left
    0
    >>> print(training.guarantee)
    (4, 0.001)-differential privacy under adding or removing one record. 5 steps on ...
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        plan: TrainingPlan,
        *,
        seed: int | None = None,
        record: str | Path | None = None,
        mode: Mode = "fast",
        noise: Mapping[str, Covariance] | None = None,
        debug: bool = False,
    ) -> None:
        check_kinds(model, optimizer, plan, seed)
        check_mode(mode, plan)
        shapes, path = checked_shapes(noise), checked_spending_path(record)
        self._mode, self._debug = mode, debug
        self._plan = plan
        self._model = model
        # Another training may have left layers frozen.
        stop_watching(model)
        check = check_layer if mode == "fast" else check_layer_alone
        self._trainable = Trainable(model, optimizer, plan, check)
        self._recording = Recording(model) if mode == "fast" else None
        self._noise = StepNoise(model, self._trainable, plan, shapes, seed)
        self._step = NoisyStep(self._noise, self._trainable, optimizer, plan.lot_size)
        self._coins: Coins = SecureCoins() if seed is None else SeededCoins(seed)
        # Threads must neither spend one step for two lots, nor take two steps with one lot.
        self._lock = threading.RLock()
        self._open: LotSum | None = None
        self._number = 0  # of the step that is open
        # Last, as it may make a file.
        self._account = StepAccount(plan, seed, mode, path)

    @property
    def plan(self) -> TrainingPlan:
        """The plan."""
        return self._plan

    @property
    def steps_spent(self) -> int:
        """How many steps were spent, those of earlier processes in the file included."""
        return self._account.spent

    @property
    def steps_left(self) -> int:
        """How many steps the plan has left."""
        return self._account.left

    @property
    def guarantee(self) -> TrainingGuarantee:
        """What the whole plan guarantees, however many of its steps have been taken."""
        return TrainingGuarantee(
            epsilon=self._plan.epsilon,
            delta=self._plan.delta,
            sampling_rate=self._plan.sampling_rate,
            steps=self._plan.steps,
            noise_multiplier=self._plan.noise_multiplier,
            accountant=self._plan.accountant,
            mode=self._mode,
            noise=self._noise.kind,
            lots=self._coins.kind,
            shaped_layers=self._noise.shaped_layers,
            debug=self._debug,
        )

    def lots(self, data: Any, *, workers: int = 0) -> Iterator[Lot]:
        """Return a lot for every step that is left, each drawn when it is asked for.

        Parameters
        ----------
        data : Dataset, Tensor, or tuple of Tensor
            A map-style data set, or tensors whose first axis is the records, wherever they are.
        workers : int, optional
            How many processes read a data set, while the model runs; the lots stay the same.

        Raises
        ------
        InvalidParameterError
            If the data makes its own batches, or has another number of records than the plan. Also
            when a lot is asked for, if the model was changed or holds NaN; nothing is spent then.
        BudgetExceededError
            If no step is left.
        StorageError
            When a lot is asked for, if the spending file cannot be written; nothing is drawn.
        """
        source = record_source(data, self._plan.records, workers)
        self._account.check_left()
        self._check_ready()
        return self._lots(source)

    def _lots(self, source: RecordSource) -> Iterator[Lot]:
        uneven = True
        while self.steps_left > 0:
            numbers, total = self._opened_lot()
            yield Lot(source, numbers, total, self._plan.views, uneven=uneven)
            if self._open is total:
                raise InvalidParameterError(
                    "training.step() was not called for the last lot: call it once for each lot, "
                    "also for an empty one"
                )
            # Batches of two sizes were run, which need not be done again.
            uneven = uneven and len(numbers) < 2

    def _opened_lot(self) -> tuple[NDArray[np.int64], LotSum]:
        with self._lock:
            # Another loop may have opened a lot.
            self._give_up()
            self._check_ready()
            numbers = self._next_lot()
            self._open = self._empty_sum(len(numbers))
            return numbers, self._open

    def _check_ready(self) -> None:
        """Raise if a step could not be taken, before it is spent."""
        check_not_inference()
        self._trainable.check_unchanged()

    def _give_up(self) -> None:
        """Let go of a lot that was drawn and never came to its step; it stays spent."""
        if self._open is not None:
            # Somebody may still hold its batches: the model is not to be watched for both.
            self._open.end()
            self._open = None

    def _next_lot(self) -> NDArray[np.int64]:
        """Spend a step, and draw its lot."""
        number = self.steps_spent
        self._trainable.check_finite()
        # Before the lot is drawn: whatever happens from here on depends on its records, also
        # whether it is given up, or the process dies.
        self._account.spend()
        self._number = number
        return drawn_records(self._coins, self._plan.records, self._plan.exact_rate, number)

    def _empty_sum(self, examples: int) -> LotSum:
        options: Any = {"views": self._plan.views, "examples": examples, "debug": self._debug}
        if self._recording is None:
            return ExactLotSum(self._trainable, **options)
        return FastLotSum(self._recording, self._trainable, **options)

    def accumulate(self, losses: Tensor) -> None:
        """Clip the gradients of a batch and add them up, instead of ``losses.mean().backward()``.

        Parameters
        ----------
        losses : Tensor
            One for each record of the batch, or one for each row: a record's loss is then the mean
            over its views. The loss of a record must depend on that record alone.

        Raises
        ------
        ShapeError
            If these are not the losses of the batch, for instance because they were reduced.
        InvalidParameterError
            If a parameter received a gradient outside of its layer, or no batch was handed out.
        """
        total = self._open
        if total is None:
            raise InvalidParameterError(
                "no lot is open: call training.accumulate(losses) within `for lot in "
                "training.lots(dataset)`"
            )
        total.add(losses)

    def step(self) -> None:
        """Add noise to the sum, divide by the expected lot size, and optimise.

        Raises
        ------
        InvalidParameterError
            If a batch is missing or the model was changed; the call can be made again then. If a
            layer mixes examples, the model stays as it was.
        BudgetExceededError
            If no step is left.
        """
        with self._lock:
            total = self._open
            if total is None:
                self._account.check_left()
                raise InvalidParameterError(
                    "no lot is open: call training.step() once for each lot of "
                    "training.lots(dataset)"
                )
            total.check_complete()
            self._check_ready()
            self._account.check_process()
            # Before anything else: no lot may come to two steps.
            self._open = None
            self._step.take(total, self._number)

    def captured_step(self, data: Any, losses: Losses, *, batch_size: int) -> Callable[[], None]:
        """Return a function that takes one step each time it is called, on a GPU as a CUDA graph.

        A step is that of the loop over `lots`. But it runs in batches of a fixed size, of which the
        last is filled up with rows that count for nothing, so that a GPU can repeat one captured
        graph for each. This saves the time that Python takes to launch kernels, which is most of
        the time of a small model. Other devices run the same batches without a graph.

        Parameters
        ----------
        data : Tensor, tuple of Tensor, or TensorDataset
            Tensors whose first axis is the records, on the device of the model.
        losses : callable
            Called with the tensors of a batch; runs the model and returns one loss for each record,
            or one for each row, for any number of records. It is called a few times here, and on a
            GPU never again: what it does in Python beside computing with tensors is not repeated.
        batch_size : int
            How many records run at once. A little above ``lot_size`` lets most lots be one batch.

        Raises
        ------
        InvalidParameterError
            In the mode ``exact``, or if model, losses or data do not fit, or cannot be captured.
            When called, the step raises what `step` raises, and if the model was moved in memory
            or switched between ``train()`` and ``eval()``.
        BudgetExceededError
            If no step is left.

        Examples
        --------
        >>> import torch
        >>> from matrixdp.training import PrivateTraining, TrainingPlan
        >>> inputs, targets = torch.randn(100, 3), torch.randint(0, 2, (100,))
        >>> model = torch.nn.Linear(3, 2)
        >>> plan = TrainingPlan(
        ...     records=100, lot_size=20, steps=5, clip_norm=1.0, epsilon=4.0, delta=1e-3
        ... )
        >>> training = PrivateTraining(model, torch.optim.SGD(model.parameters(), lr=0.1), plan)
        >>> def losses(rows, labels):
        ...     return torch.nn.functional.cross_entropy(model(rows), labels, reduction="none")
        >>> step = training.captured_step((inputs, targets), losses, batch_size=32)
        >>> while training.steps_left:
        ...     step()
        """
        if self._recording is None:
            raise InvalidParameterError(
                f"mode={self._mode!r} runs one record at a time, which is not captured: use the "
                "loop over training.lots(...), or mode='fast'"
            )
        check_callable(losses, "losses")
        records = tensor_records(data, self._plan.records)
        size = positive_integer(batch_size, "batch_size")
        self._account.check_left()
        self._check_ready()
        total = PaddedLotSum(
            *(self._model, self._recording, self._trainable, records, losses),
            batch_size=size,
            views=self._plan.views,
            debug=self._debug,
        )
        return lambda: self._padded_step(total)

    def _padded_step(self, total: PaddedLotSum) -> None:
        with self._lock:
            self._give_up()
            self._account.check_left()
            self._check_ready()
            total.check_unchanged()
            total.add_lot(self._next_lot())
            self._step.take(total, self._number)

    def state_dict(self) -> State:
        """Return what a checkpoint has to remember; between steps, as an open lot is spent."""
        return self._account.state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; steps that were spent after it stay spent.

        A release needs the spending file that it was begun with, since a checkpoint knows nothing
        of later steps. An experiment needs none: it draws the same lots and noise once more.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned.

        Raises
        ------
        InvalidParameterError
            If it belongs to another plan, mode, seed or run, or there is no spending file.
        """
        with self._lock:
            # First: an experiment then goes back to the count of the checkpoint.
            self._give_up()
            self._account.resume(state)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two copies would spend one budget twice."""
        raise InvalidParameterError(
            "PrivateTraining is never pickled or copied: save training.state_dict()"
        )
