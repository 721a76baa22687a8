"""Private training: a loop that stays the user's own, and a plan that it cannot exceed."""

import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from torch import Tensor, nn, optim

from matrixdp.covariance import Covariance
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.training.exact_sum import MOST_RECORDS, ExactLotSum
from matrixdp.training.fast_sum import FastLotSum
from matrixdp.training.guarantee import Mode, TrainingGuarantee
from matrixdp.training.lot_sum import LotSum
from matrixdp.training.lots import Lot
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.recording import Recording
from matrixdp.training.records import RecordSource, record_source
from matrixdp.training.sampling import Coins, SecureCoins, SeededCoins, drawn_records
from matrixdp.training.spending import SpendingRecord
from matrixdp.training.step_noise import StepNoise
from matrixdp.training.trainable import Trainable

__all__ = ["PrivateTraining"]

State = dict[str, str | int | None]


class PrivateTraining:
    """Trains a model privately, step by step, as a plan says.

    The model stays what it is: nothing is stored in it, and outside of the loop over batches it
    runs as always. Gradients belong to the training: they are set in `step` and removed again.

    Parameters
    ----------
    model : nn.Module
        Any model whose layers treat the rows of a batch independently.
    optimizer : optim.Optimizer
        Over the model's parameters; any but LBFGS.
    plan : TrainingPlan
        What is done, and how much noise that needs.
    seed : int, optional
        For experiments: lots and noise come from this seed, on the model's device, and protect
        nothing. Without it lots come from the operating system's randomness and noise is exact.
    record : path, optional
        A file that counts the steps before they are drawn. Needed to resume a release from a
        checkpoint; see `load_state_dict`.
    mode : {"fast", "exact"}, optional
        How gradients are added up. ``fast``, the default, runs whole batches; its guarantee states
        what is assumed of float arithmetic. ``exact`` runs one record at a time and adds up whole
        numbers, so that the guarantee holds for the program as it is, at many times the cost.
    noise : mapping of str to Covariance, optional
        Noise of another shape for the layers named. The matrix of a layer is its weight as outputs
        times inputs, with the bias as the last column. A covariance needs at least
        ``plan.noise_scale`` in every direction: use ``covariance.rescaled_for(sensitivity,
        plan.step_budget)``.

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
    ) -> None:
        _check_kinds(model, optimizer, plan, seed)
        _check_mode(mode, plan)
        self._mode = mode
        self._plan = plan
        self._optimizer = optimizer
        self._seed = seed
        self._recording = Recording(model)
        self._trainable = Trainable(model, optimizer, plan)
        self._noise = StepNoise(model, self._trainable, plan, noise or {}, seed)
        self._coins: Coins = SecureCoins() if seed is None else SeededCoins(seed)
        self._open: LotSum | None = None
        # Last, as it may make a file.
        self._record = None if record is None else _opened_record(Path(record), plan, seed)
        self._unrecorded = 0  # steps spent, where there is no record to count them
        self._run = secrets.token_hex(16) if self._record is None else self._record.run

    @property
    def plan(self) -> TrainingPlan:
        """The plan."""
        return self._plan

    @property
    def steps_spent(self) -> int:
        """How many steps were spent, those of earlier processes in the record included."""
        return self._unrecorded if self._record is None else self._record.spent

    @property
    def steps_left(self) -> int:
        """How many steps the plan has left."""
        return self._plan.steps - self.steps_spent

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
        )

    def lots(self, data: Any) -> Iterator[Lot]:
        """Return a lot for every step that is left, each drawn when it is asked for.

        Parameters
        ----------
        data : Dataset, Tensor, or tuple of Tensor
            A map-style data set, or tensors whose first axis is the records. Tensors are indexed
            where they are, so that a data set on the GPU stays there.

        Raises
        ------
        InvalidParameterError
            If the data makes its own batches, or has another number of records than the plan.
        BudgetExceededError
            If no step is left.
        """
        source = record_source(data, self._plan.records)
        self._check_steps_left()
        return self._lots(source)

    def _lots(self, source: RecordSource) -> Iterator[Lot]:
        plan = self._plan
        if self._open is not None:
            # A lot that was given up, for instance by an exception. Whether that happened may
            # depend on its records, so it counts. Somebody may still hold its batches: the model is
            # not to be watched for both.
            self._open.end()
            self._spend()
        while self.steps_left:
            numbers = drawn_records(self._coins, plan.records, plan.exact_rate, self.steps_spent)
            total = self._empty_sum(len(numbers))
            self._open = total
            yield Lot(source, numbers, total, plan.views)
            if self._open is total:
                raise InvalidParameterError(
                    "training.step() was not called for the last lot: call it once for each lot, "
                    "also for an empty one"
                )

    def _empty_sum(self, examples: int) -> LotSum:
        views = self._plan.views
        if self._mode == "exact":
            return ExactLotSum(self._trainable, views=views, examples=examples)
        return FastLotSum(self._recording, self._trainable, views=views, examples=examples)

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
            If a parameter received a gradient outside of its layer, or this is called outside of a
            loop over batches.
        """
        if self._open is None:
            raise InvalidParameterError(
                "no lot is open: call training.accumulate(losses) within `for lot in "
                "training.lots(dataset)`"
            )
        self._open.add(losses)

    def step(self) -> None:
        """Spend a step, add noise to the sum, divide by the expected lot size, and optimise.

        Raises
        ------
        InvalidParameterError
            If a batch is missing or the model was changed; nothing is spent then. If losses or
            gradients are not finite, the step is spent and the model stays as it was.
        BudgetExceededError
            If no step is left.
        StorageError
            If the spending record cannot be written; nothing is drawn then.
        """
        self._check_steps_left()
        total = self._open
        if total is None:
            raise InvalidParameterError(
                "no lot is open: call training.step() once for each lot of training.lots(dataset)"
            )
        total.check_complete()
        self._trainable.check_unchanged()
        number = self.steps_spent
        # All that was checked so far is the loop's doing. What happens from here on depends on the
        # records, also whether it fails: so the step counts before anything is looked at.
        self._spend()
        matrices = self._noise.gathered(total.sums)
        total.check_finite(matrices)
        # The expected size is public; dividing by the drawn one would reveal that.
        for parameter, mean in self._noise.noisy_means(matrices, number, self._plan.lot_size):
            parameter.grad = mean.to(parameter.dtype)
        self._optimizer.step()
        self._trainable.forget_gradients()

    def _spend(self) -> None:
        if self._record is None:
            self._unrecorded += 1
        else:
            self._record.spend()
        self._open = None

    def _check_steps_left(self) -> None:
        if not self.steps_left > 0:
            raise BudgetExceededError(
                f"all steps={self._plan.steps} of the plan are spent: further steps would need a "
                "plan and a budget of their own"
            )

    def state_dict(self) -> State:
        """Return what a checkpoint has to remember besides the model and the optimiser."""
        return {
            "plan": self._plan.digest,
            "run": self._run,
            "seed": self._seed,
            "steps_spent": self.steps_spent,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; steps that were spent after it stay spent.

        A release is continued with the spending record that it was begun with: the checkpoint
        does not know how many steps were drawn after it. An experiment needs none. It draws the
        same lots and the same noise once more.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned.

        Raises
        ------
        InvalidParameterError
            If it belongs to another plan, seed or run, or there is no record.
        """
        self._check_state(state)
        if self._record is None:
            self._unrecorded = int(state["steps_spent"])
        self._open = None

    def _check_state(self, state: Mapping[str, Any]) -> None:
        own = self.state_dict()
        if set(state) != set(own) or any(state[key] != own[key] for key in ("plan", "seed")):
            raise InvalidParameterError(
                "the checkpoint belongs to another plan or seed: resume with the plan that it was "
                "made with"
            )
        if self._record is None:
            # An experiment repeats the very same steps; a release would draw others in their place.
            if self._seed is None:
                raise InvalidParameterError(
                    "a checkpoint does not know which steps were spent after it: resume with "
                    "PrivateTraining(..., record=path), with the record that the run began with"
                )
        elif state["run"] != self._run or not state["steps_spent"] <= self.steps_spent:
            raise InvalidParameterError(
                "the checkpoint does not belong to this spending record, or the record lost "
                "steps: resume with the record that the run began with"
            )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two copies would spend one budget twice."""
        raise InvalidParameterError(
            "PrivateTraining is never pickled or copied: save training.state_dict()"
        )


def _check_kinds(model: object, optimizer: object, plan: object, seed: object) -> None:
    for name, value, kind in (
        ("model", model, nn.Module),
        ("optimizer", optimizer, optim.Optimizer),
        ("plan", plan, TrainingPlan),
    ):
        if not isinstance(value, kind):
            raise InvalidParameterError(
                f"{name} is a {type(value).__name__}: pass a {kind.__name__}"
            )
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not seed >= 0):
        raise InvalidParameterError(f"seed={seed!r} must be a whole number of at least 0, or None")


def _check_mode(mode: object, plan: TrainingPlan) -> None:
    if mode not in get_args(Mode):
        raise InvalidParameterError(f"mode={mode!r} is not known: pass 'fast' or 'exact'")
    if mode == "exact" and not plan.records <= MOST_RECORDS:
        raise InvalidParameterError(
            f"records={plan.records} is more than the {MOST_RECORDS} whose sum float64 holds "
            "exactly: use mode='fast'"
        )


def _opened_record(path: Path, plan: TrainingPlan, seed: int | None) -> SpendingRecord:
    # A record of an experiment does not pass for that of a release, nor the other way round.
    randomness = "secure" if seed is None else f"seed {seed}"
    return SpendingRecord(path, plan=plan.digest, randomness=randomness)
