"""Private training: a loop that stays the user's own, and a plan that it cannot exceed."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torch import nn, optim
from torch.distributed import ProcessGroup

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer
from matrixdp.privacy.payment import RunPayer
from matrixdp.training.account import State, StepAccount
from matrixdp.training.checks.arguments import check_losses
from matrixdp.training.guarantee import Mode, TrainingGuarantee
from matrixdp.training.lots.batch import Losses
from matrixdp.training.lots.lot import Lot
from matrixdp.training.lots.records import (
    Collate,
    RecordSource,
    TensorRecords,
    checked_records,
    record_source,
)
from matrixdp.training.lots.unit_records import checked_units
from matrixdp.training.noise.noisy_step import NoisyStep
from matrixdp.training.parts import Arguments, made_parts
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.progress import TrainingProgress
from matrixdp.training.ranks.accepted import checked_ranks
from matrixdp.training.ranks.facts import facts_of_training
from matrixdp.training.ranks.group import Point, agree
from matrixdp.training.steps import Steps

__all__ = ["PrivateTraining"]


class PrivateTraining:
    """Trains a model privately, step by step, as a plan says.

    The model stays what it is: outside of a step it runs as always.

    Parameters
    ----------
    model : nn.Module
        The model, whose parameters are trained.
    losses : callable
        Returns one loss for each record of a batch, or one for each row, and has no side effects.
        It gets what the data set gives: the items of a tuple one by one, a tensor or a dict as it
        is. The loss of a record must depend on that record alone.
    optimizer : optim.Optimizer or list of optim.Optimizer
        Over the model's parameters; any but LBFGS and SparseAdam.
    plan : TrainingPlan
        What is done, and how much noise that needs.
    seed : int, optional
        For experiments: lots and noise come from this seed, on the model's device, and protect
        nothing. Without it lots and noise are secret, and noise is exact.
    spending : path or LedgerRun, optional
        A file that counts each step before its lot is drawn, or ``account.run(name)`` of a ledger,
        which also pays for the plan. Needed to resume a release from a checkpoint; see
        `load_state_dict`.
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
    ranks : ProcessGroup, optional
        The processes of ``torch.distributed`` that train one model together, such as
        ``torch.distributed.group.WORLD``; see ``docs/ranks.md``. All make the same calls. Each
        reads and clips the records of its own numbers, the first one spends, and every element of
        the sum gets noise once. The model is not wrapped.
    debug : bool, optional
        Raise in a step if a loss or a gradient is not finite, and name the layer. This tells that
        such a record is there, without noise: for public data. Otherwise such records add nothing.

    Raises
    ------
    InvalidParameterError
        If a layer mixes records or an argument is wrong; the message names it.
    BudgetExceededError
        If a covariance is too small.
    RankError
        If another rank was refused, or is at another point of the program.

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
        spending: str | Path | RunPayer | None = None,
        restart: bool = False,
        mode: Mode = "fast",
        layer_covariances: Mapping[str, Covariance] | None = None,
        ranks: ProcessGroup | None = None,
        debug: bool = False,
    ) -> None:
        self._model, self._plan, self._mode, self._debug = model, plan, mode, debug
        self._ranks = checked_ranks(ranks)
        given = Arguments(
            *(model, losses, optimizer, plan, seed, spending, mode, layer_covariances, ranks)
        )
        parts = self._ranks.together(Point("make", 0), lambda: made_parts(given, self._ranks))
        self._noise, self._coins = parts.noise, parts.coins
        options: Any = {"mode": mode, "seed": seed, "debug": debug, "restart": restart}
        options |= {"covariances": self._noise.shaped_layers, "shards": self._noise.shards}
        agree(self._ranks, 0, facts_of_training(plan, model, **options))
        self._ranks.number_training()
        # Last, as it may make a file.
        self._account = StepAccount(plan, seed, mode, parts.spending, self._ranks)
        self._steps = Steps(
            *(model, losses, plan),
            trainable=parts.trainable,
            account=self._account,
            coins=parts.coins,
            end=NoisyStep(parts.noise, parts.trainable, parts.optimizers, plan.lot_size),
            ranks=self._ranks,
            mode=mode,
            restart=restart,
            debug=debug,
        )

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
        """The losses of a batch. Another function can be set, and is checked before it is used.

        A step that was captured stays one of the losses that it was captured with.
        """
        return self._steps.losses

    @losses.setter
    def losses(self, losses: Losses) -> None:
        check_losses(losses)
        self._steps.losses = losses

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
            ranks=self._ranks.size,
            units=self._plan.units,
        )

    def check(self, rows: Any, *, collate: Collate | None = None) -> None:
        """Check that the losses keep records apart, on rows of your own; nothing is spent.

        `lots` does this on made-up rows of the shapes and types of a record, whose integers are 0
        and 1, and whose other numbers are from -3 to 3. Where these make no sense to the model,
        such as token ids with a structure, call this first, with the same `collate`: then `lots`
        does not. In the mode ``exact`` there is nothing to check.

        Parameters
        ----------
        rows : Dataset, Tensor, or tuple of Tensor
            At least four records that are not private, as `lots` takes them. Of a plan with units
            at least four units, each of which has as many records as a step takes.
        collate : callable, optional
            As in `lots`.

        Raises
        ------
        InvalidParameterError
            If records are mixed, or the losses cannot be computed.
        """
        self._steps.check_on(record_source(rows, collate))

    def explain(self) -> None:
        """Print how the gradients of each layer are formed, after they were checked."""
        alone = "every record is run by itself, by plain autograd: mode exact\n"
        sys.stdout.write(alone if self._mode == "exact" else self._steps.check.explained())

    def lots(
        self,
        data: Any,
        *,
        units: object = None,
        collate: Collate | None = None,
        workers: int = 0,
        progress: bool = False,
    ) -> Iterator[Lot]:
        """Return a lot for every step that is left, each drawn when it is asked for.

        Parameters
        ----------
        data : Dataset, Tensor, or tuple of Tensor
            A map-style data set, or tensors whose first axis is the records, wherever they are.
        units : sequence, optional
            For a plan with units: whose each record is, by integers or strings.
        collate : callable, optional
            Makes a batch of a list of items of a data set; by default as a ``DataLoader`` does.
        workers : int, optional
            How many processes read a data set, while the model runs; the lots stay the same.
        progress : bool, optional
            Whether to show a progress bar.

        Raises
        ------
        InvalidParameterError
            If the data makes its own batches, or does not fit the plan; if losses mix records; or
            if a spending file counts steps whose checkpoint was not loaded. Also when a lot is
            asked for, if the model was changed or holds NaN; nothing is spent then. On a GPU, NaN
            that came up in a step is found by the next call of `step`, whose lot is spent.
        BudgetExceededError
            If no step is left. A finished run that is resumed has no lots, and raises nothing.
        StorageError
            When a lot is asked for, if the spending file cannot be written; nothing is drawn.
        """
        source = self._source(data, units, collate, workers)
        self._steps.begin(data, source, is_release=self._noise.kind == "exact")
        lots = self._steps.lots(source)
        return _shown(lots, self.progress) if progress and self._ranks.number == 0 else lots

    def _source(
        self, data: Any, units: object = None, collate: Collate | None = None, workers: int = 0
    ) -> RecordSource:
        """Return the records or units on every rank, or raise on all of them."""

        def made() -> RecordSource:
            source = record_source(data, collate, workers)
            if self._plan.units is None and units is None:
                return checked_records(source, self._plan.population)
            return checked_units(source, self._plan.units, units)

        return self._ranks.together(Point("begin", self._account.spent), made)

    def step(self, lot: Lot, *, batch_size: int) -> None:
        """Take one step: losses, gradients, clipping, noise, and the optimiser.

        Parameters
        ----------
        lot : Lot
            What `lots` has just returned. It is taken once.
        batch_size : int
            How many records, or units, run at once. It limits the memory that is used; in the mode
            ``exact`` every one runs by itself. On a GPU batches are filled up to a few sizes, at
            most this one, with rows that count for nothing.

        Raises
        ------
        InvalidParameterError
            If the lot is not the last one of this training or was taken, or the model was changed.
            Until noise is drawn, the call can be made again with the same lot.
        """
        self._steps.take(lot, positive_integer(batch_size, "batch_size"))

    def captured_step(self, data: Any, *, batch_size: int) -> Callable[[], None]:
        """Return a function that takes one step each time it is called, on a GPU as a CUDA graph.

        A step is that of the loop over `lots`. A graph for each of the few sizes of batches saves
        the time that Python takes to launch kernels, which is most of the time of a small model.
        Other devices run the same batches without a graph.

        Parameters
        ----------
        data : Tensor, tuple of Tensor, or TensorDataset
            Tensors whose first axis is the records, on the device of the model.
        batch_size : int
            How many records run at once. A little above ``lot_size`` lets most lots be one batch.

        Raises
        ------
        InvalidParameterError
            In the mode ``exact``, for a plan with units, or if something cannot be captured.
            When called, the step raises what `lots` raises, and if losses or model were changed.
        BudgetExceededError
            If no step is left.

        Examples
        --------
        >>> import torch
        >>> from matrixdp.training import PrivateTraining, TrainingPlan
        >>> rows, model = torch.randn(100, 3), torch.nn.Linear(3, 1)
        >>> plan = TrainingPlan(
        ...     records=100, lot_size=20, steps=5, clip_norm=1.0, epsilon=4.0, delta=1e-3
        ... )
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> training = PrivateTraining(model, lambda x: model(x)[:, 0] ** 2, optimizer, plan)
        >>> step = training.captured_step(rows, batch_size=32)
        >>> while training.progress.steps_left:
        ...     step()
        """
        if self._plan.units is not None:
            raise InvalidParameterError(
                f"the plan is for {self._plan.unit}s, whose records are chosen anew in each step, "
                "which is not captured: use the loop over training.lots(...)"
            )
        source = self._source(data)
        if not isinstance(source, TensorRecords):
            raise InvalidParameterError(
                f"the data is a {type(data).__name__}: a captured step needs tensors whose first "
                "axis is the records. For a data set, use the loop over training.lots(...)"
            )
        size = positive_integer(batch_size, "batch_size")
        self._steps.begin(data, source, is_release=self._noise.kind == "exact")
        total, losses = self._steps.captured(source, size), self._steps.losses
        return lambda: self._steps.take_captured(total, source, losses)

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
        # First: an experiment then goes back to the count of the checkpoint.
        self._steps.give_up()
        self._account.resume(state)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two copies would spend one budget twice."""
        raise InvalidParameterError(
            "PrivateTraining is never pickled or copied: save training.state_dict()"
        )


def _shown(lots: Iterator[Lot], progress: TrainingProgress) -> Iterator[Lot]:
    """Return lots behind a progress bar."""
    from rich.progress import track  # noqa: PLC0415

    yield from track(lots, "private steps", total=progress.steps_left)
