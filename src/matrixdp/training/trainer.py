"""Private training: a loop that stays the user's own, and a plan that it cannot exceed."""

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn, optim

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer
from matrixdp.training.account import State, StepAccount
from matrixdp.training.checks.arguments import (
    check_kinds,
    check_losses,
    check_mode,
    check_not_inference,
    checked_covariances,
    checked_optimizers,
    checked_spending_path,
)
from matrixdp.training.checks.compiled import uncompiled
from matrixdp.training.checks.model import ModelCheck, made_up_batches, own_batches
from matrixdp.training.checks.repeated import Release, warn_if_repeated
from matrixdp.training.checks.trainable import Trainable
from matrixdp.training.guarantee import Mode, TrainingGuarantee
from matrixdp.training.lots.batch import BatchGradients, Losses, Sums, added_up
from matrixdp.training.lots.captured_sum import CapturedSum
from matrixdp.training.lots.exact_sum import ExactSum
from matrixdp.training.lots.lot import Lot, batched
from matrixdp.training.lots.records import (
    Collate,
    RecordSource,
    TensorRecords,
    checked_records,
    record_source,
)
from matrixdp.training.lots.sampling import Coins, SecureCoins, SeededCoins, drawn_records
from matrixdp.training.noise.noisy_step import NoisyStep
from matrixdp.training.noise.step_noise import StepNoise
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.progress import TrainingProgress

__all__ = ["PrivateTraining"]


class _Open(NamedTuple):
    """A lot that was drawn, and its records."""

    lot: Lot
    source: RecordSource
    numbers: NDArray[np.int64]


class PrivateTraining:
    """Trains a model privately, step by step, as a plan says.

    The model stays what it is: nothing is stored in it, and outside of a step it runs as always.

    Parameters
    ----------
    model : nn.Module
        The model, whose parameters are trained.
    losses : callable
        Returns one loss for each record of a batch, or one for each row, and has no side effects.
        It gets what the data set gives: the parts of a tuple one by one, a tensor or a dict as it
        is. The loss of a record must depend on that record alone.
    optimizer : optim.Optimizer or list of optim.Optimizer
        Over the model's parameters; any but LBFGS and SparseAdam.
    plan : TrainingPlan
        What is done, and how much noise that needs.
    seed : int, optional
        For experiments: lots and noise come from this seed, on the model's device, and protect
        nothing. Without it lots come from the operating system's randomness and noise is exact.
    spending : path, optional
        A file that counts each step before its lot is drawn. Needed to resume a release from a
        checkpoint; see `load_state_dict`.
    restart : bool, optional
        Train on the steps that a spending file has left without the checkpoint of the run. Steps
        that are spent stay spent.
    mode : {"fast", "exact"}, optional
        How gradients are formed. ``fast``, the default, runs whole batches; its guarantee states
        what is assumed. ``exact`` runs one record at a time and adds up integers, so that the
        guarantee holds for the program as it is, at many times the cost.
    layer_covariances : mapping of str to Covariance, optional
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
        If a layer mixes records or an argument is wrong; the message names it.
    BudgetExceededError
        If a covariance is too small.

    Notes
    -----
    *Guarantee:* see `guarantee`; it holds for everything that is computed from the model and the
    optimiser after any number of steps. Losses and anything else that is computed from the records
    themselves are not covered.

    Examples
    --------
    >>> import torch
    >>> from matrixdp.training import PrivateTraining, TrainingPlan
    >>> inputs, targets = torch.randn(100, 3), torch.randint(0, 2, (100,))
    >>> model = torch.nn.Linear(3, 2)
    >>> def losses(rows, labels):
    ...     return torch.nn.functional.cross_entropy(model(rows), labels, reduction="none")
    >>> plan = TrainingPlan(
    ...     records=100, lot_size=20, steps=5, clip_norm=1.0, epsilon=4.0, delta=1e-3
    ... )
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> training = PrivateTraining(model, losses, optimizer, plan)
    >>> for lot in training.lots((inputs, targets)):
    ...     training.step(lot, batch_size=16)
    >>> print(training.progress)
    5 of 5 steps and 1 of 1 epochs are spent; the whole plan costs epsilon 4 at delta 0.001
    >>> print(training.guarantee)
    (4, 0.001)-differential privacy under adding or removing one record. 5 steps on ...
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        plan: TrainingPlan,
        *,
        seed: int | None = None,
        spending: str | Path | None = None,
        restart: bool = False,
        mode: Mode = "fast",
        layer_covariances: Mapping[str, Covariance] | None = None,
        debug: bool = False,
    ) -> None:
        check_kinds(model, losses, plan, seed)
        check_mode(mode, plan)
        optimizers = checked_optimizers(optimizer)
        covariances = checked_covariances(layer_covariances)
        path = checked_spending_path(spending)
        self._model, self._losses, self._plan = model, losses, plan
        self._mode, self._debug, self._restart = mode, debug, restart
        self._trainable = Trainable(model, optimizers, plan, mode)
        self._check = ModelCheck(model, self._trainable, views=plan.views, debug=debug)
        self._noise = StepNoise(model, self._trainable, plan, covariances, seed)
        self._step = NoisyStep(self._noise, self._trainable, optimizers, plan.lot_size)
        self._coins: Coins = SecureCoins() if seed is None else SeededCoins(seed)
        # Threads must neither spend one step for two lots, nor take two steps with one lot.
        self._lock = threading.RLock()
        self._open: _Open | None = None
        # Last, as it may make a file.
        self._account = StepAccount(plan, seed, mode, path)

    def __repr__(self) -> str:
        """Say what is trained, how, and how far it has come."""
        return (
            f"<PrivateTraining of {type(self._model).__name__}, mode {self._mode}, "
            f"{self._noise.kind} noise: {self.progress}>"
        )

    @property
    def plan(self) -> TrainingPlan:
        """The plan."""
        return self._plan

    @property
    def losses(self) -> Losses:
        """The losses of a batch. Another function can be set, and is checked before it is used."""
        return self._losses

    @losses.setter
    def losses(self, losses: Losses) -> None:
        check_losses(losses)
        self._losses = losses

    @property
    def progress(self) -> TrainingProgress:
        """What was spent, steps of earlier processes included, and what will be."""
        return TrainingProgress(plan=self._plan, steps_spent=self._account.spent)

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

    def check(self, rows: Any, *, collate: Collate | None = None) -> None:
        """Check that the losses keep records apart, on rows of your own; nothing is spent.

        `lots` does this on made-up rows of the shapes and types of a record, whose integers are 0
        and 1. Where these make no sense to the model, such as token ids with a structure, call this
        first: then `lots` does not. In the mode ``exact`` there is nothing to check.

        Parameters
        ----------
        rows : Dataset, Tensor, or tuple of Tensor
            At least four records that are not private, as `lots` takes them.
        collate : callable, optional
            As in `lots`.

        Raises
        ------
        InvalidParameterError
            If records are mixed, or the losses cannot be computed.
        """
        draws = own_batches(record_source(rows, collate), self._plan.views)
        if self._mode == "fast":
            self._check.run(self._losses, draws)

    def explain(self) -> None:
        """Print how the gradients of each layer are formed, after they were checked."""
        if self._mode == "exact":
            sys.stdout.write("every record is run by itself, by plain autograd: mode exact\n")
            return
        rows = [("layer", "kind", "rule"), *self._check.rules()]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        for layer, kind, rule in rows:
            sys.stdout.write(f"{layer:{widths[0]}}  {kind:{widths[1]}}  {rule}\n".lstrip())

    def lots(
        self,
        data: Any,
        *,
        collate: Collate | None = None,
        workers: int = 0,
        progress: bool = False,
    ) -> Iterator[Lot]:
        """Return a lot for every step that is left, each drawn when it is asked for.

        Parameters
        ----------
        data : Dataset, Tensor, or tuple of Tensor
            A map-style data set, or tensors whose first axis is the records, wherever they are.
        collate : callable, optional
            Makes a batch of a list of items of a data set; by default as a ``DataLoader`` does.
        workers : int, optional
            How many processes read a data set, while the model runs; the lots stay the same.
        progress : bool, optional
            Whether to show a progress bar.

        Raises
        ------
        InvalidParameterError
            If the data makes its own batches, or has another number of records than the plan; if
            losses mix records; or if a spending file counts steps whose checkpoint was not loaded.
            Also when a lot is asked for, if the model was changed or holds NaN; nothing is spent
            then.
        BudgetExceededError
            If no step is left. A finished run that is resumed has no lots, and raises nothing.
        StorageError
            When a lot is asked for, if the spending file cannot be written; nothing is drawn.
        """
        source = checked_records(record_source(data, collate, workers), self._plan.records)
        if not self._account.begun and self._account.spent and not self._restart:
            raise InvalidParameterError(
                f"the spending file counts {self._account.spent} steps of a run whose checkpoint "
                "was not loaded: call training.load_state_dict(...) with it, or pass restart=True "
                "to train a fresh model on the steps that are left; those spent stay spent"
            )
        if not self._account.resumed_at_end:
            self._account.check_left()
        self._check_ready()
        self._gradients(source)
        self._warn_if_repeated(data, source)
        lots = self._lots(source)
        return _shown(lots, self.progress) if progress else lots

    def _lots(self, source: RecordSource) -> Iterator[Lot]:
        while self._account.left > 0:
            with self._lock:
                # Another loop may have opened a lot; it stays spent.
                self._open = None
                self._check_ready()
                opened = self._opened(source)
                self._open = opened
            yield opened.lot
            if self._open is opened:
                raise InvalidParameterError(
                    "training.step(lot) was not called for the last lot: call it once for each "
                    "lot, also for an empty one"
                )

    def _opened(self, source: RecordSource) -> _Open:
        """Spend a step, and draw its lot."""
        number = self._account.spent
        self._trainable.check_finite()
        # Before the lot is drawn: whatever happens from here on depends on its records, also
        # whether it is given up, or the process dies.
        self._account.spend()
        rate = self._plan.exact_rate
        numbers = drawn_records(self._coins, self._plan.records, rate, number)
        return _Open(Lot(number), source, numbers)

    def step(self, lot: Lot, *, batch_size: int) -> None:
        """Take one step: losses, gradients, clipping, noise, and the optimiser.

        Parameters
        ----------
        lot : Lot
            What `lots` has just returned. It is taken once.
        batch_size : int
            How many records run at once. It limits the memory that is used; in the mode ``exact``
            every record runs by itself.

        Raises
        ------
        InvalidParameterError
            If the lot is not the last one of this training or was taken, or the model was changed.
            Until noise is drawn, the call can be made again with the same lot.
        """
        size = positive_integer(batch_size, "batch_size")
        with self._lock:
            opened = self._open
            if opened is None or opened.lot is not lot:
                raise InvalidParameterError(
                    "this lot was taken already, was given up for a later one, or belongs to "
                    "another training: call training.step(lot) once for each lot of "
                    "training.lots(...)"
                )
            self._check_ready()
            self._account.check_process()
            sums = self._sum_of(opened, size)
            # Before the noise: no lot may come to two steps.
            self._open = None
            self._step.take(sums, lot.step)

    def _sum_of(self, opened: _Open, size: int) -> Sums:
        """Return the sum of the clipped gradients of a lot."""
        source, numbers = opened.source, opened.numbers
        views = self._plan.views
        gradients = self._gradients(source)
        if gradients is None:
            alone = [numbers[place : place + 1] for place in range(len(numbers))]
            exact = ExactSum(
                *(self._model, self._losses, self._trainable), views=views, debug=self._debug
            )
            with uncompiled(), torch.enable_grad():
                return exact(source.batches(alone, views))
        lot = list(batched(numbers, self._plan.records, self._plan.lot_size, size))
        batches = zip(source.batches(lot, views), map(len, lot), strict=True)
        # Lots have many sizes, and trying algorithms out for each takes seconds.
        tried = torch.backends.cudnn.benchmark
        try:
            torch.backends.cudnn.benchmark = False
            with uncompiled(), torch.enable_grad():
                return added_up(gradients, batches)
        finally:
            torch.backends.cudnn.benchmark = tried

    def _gradients(self, source: RecordSource) -> BatchGradients | None:
        """Return how gradients are formed, after a check if anything has changed.

        None in the mode exact.
        """
        if self._mode == "exact":
            return None
        chosen = self._check.known(self._losses)
        if chosen is None:
            chosen = self._check.run(self._losses, made_up_batches(source, self._plan.views))
        return chosen.gradients

    def _check_ready(self) -> None:
        """Raise if a step could not be taken, before it is spent."""
        check_not_inference()
        self._trainable.check_unchanged()

    def _warn_if_repeated(self, data: Any, source: RecordSource) -> None:
        if self._noise.kind == "exact":
            tensors = source.tensors if isinstance(source, TensorRecords) else ()
            release = Release(self._account.run, self._plan, lambda: self._account.spent)
            warn_if_repeated(release, [*self._trainable, *tensors, *([] if tensors else [data])])

    def captured_step(self, data: Any, *, batch_size: int) -> Callable[[], None]:
        """Return a function that takes one step each time it is called, on a GPU as a CUDA graph.

        A step is that of the loop over `lots`. But it runs in batches of a fixed size, which are
        filled up with rows that count for nothing, so that a GPU can repeat one captured graph for
        each. This saves the time that Python takes to launch kernels, which is most of the time of
        a small model. Other devices run the same batches without a graph.

        Parameters
        ----------
        data : Tensor, tuple of Tensor, or TensorDataset
            Tensors whose first axis is the records, on the device of the model.
        batch_size : int
            How many records run at once. A little above ``lot_size`` lets most lots be one batch.

        Raises
        ------
        InvalidParameterError
            In the mode ``exact``, or if model, losses or data do not fit, or cannot be captured.
            When called, the step raises what `lots` raises, and if the model was moved in memory
            or switched between ``train()`` and ``eval()``.
        BudgetExceededError
            If no step is left.

        Examples
        --------
        >>> import torch
        >>> from matrixdp.training import PrivateTraining, TrainingPlan
        >>> inputs, targets = torch.randn(100, 3), torch.randint(0, 2, (100,))
        >>> model = torch.nn.Linear(3, 2)
        >>> def losses(rows, labels):
        ...     return torch.nn.functional.cross_entropy(model(rows), labels, reduction="none")
        >>> plan = TrainingPlan(
        ...     records=100, lot_size=20, steps=5, clip_norm=1.0, epsilon=4.0, delta=1e-3
        ... )
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> training = PrivateTraining(model, losses, optimizer, plan)
        >>> step = training.captured_step((inputs, targets), batch_size=32)
        >>> while training.progress.steps_left:
        ...     step()
        """
        source = checked_records(record_source(data), self._plan.records)
        if not isinstance(source, TensorRecords):
            raise InvalidParameterError(
                f"the data is a {type(data).__name__}: a captured step needs tensors whose first "
                "axis is the records. For a data set, use the loop over training.lots(...)"
            )
        size = positive_integer(batch_size, "batch_size")
        self._account.check_left()
        self._check_ready()
        gradients = self._gradients(source)
        if gradients is None:
            raise InvalidParameterError(
                f"mode={self._mode!r} runs one record at a time, which is not captured: use the "
                "loop over training.lots(...), or mode='fast'"
            )
        self._warn_if_repeated(data, source)
        with uncompiled(), torch.enable_grad():
            total = CapturedSum(
                *(self._model, gradients, self._trainable, source),
                batch_size=size,
                views=self._plan.views,
                expected=self._plan.lot_size,
                debug=self._debug,
            )
        return lambda: self._captured(total, source)

    def _captured(self, total: CapturedSum, source: RecordSource) -> None:
        with self._lock:
            self._open = None
            self._account.check_left()
            self._check_ready()
            total.check_unchanged()
            opened = self._opened(source)
            with uncompiled(), torch.enable_grad():
                sums = total(opened.numbers)
            self._step.take(sums, opened.lot.step)

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
            self._open = None
            self._account.resume(state)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two copies would spend one budget twice."""
        raise InvalidParameterError(
            "PrivateTraining is never pickled or copied: save training.state_dict()"
        )


def _shown(lots: Iterator[Lot], progress: TrainingProgress) -> Iterator[Lot]:
    """Return lots behind a progress bar."""
    from rich.progress import track  # noqa: PLC0415

    plan = progress.plan
    yield from track(
        lots, "private steps", total=plan.steps, completed=progress.steps_spent, transient=False
    )
