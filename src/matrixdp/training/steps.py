"""The steps of a training: spend, draw a lot, form its sum, add noise, optimise."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training.account import StepAccount
from matrixdp.training.checks.arguments import check_not_inference
from matrixdp.training.checks.model import ModelCheck, made_up_batches, own_batches
from matrixdp.training.checks.repeated import Release, warn_if_repeated
from matrixdp.training.checks.untouched import untouched
from matrixdp.training.guarantee import Mode
from matrixdp.training.lots.batch import BatchGradients, Losses, Sums
from matrixdp.training.lots.captured_sum import CapturedSum
from matrixdp.training.lots.exact_sum import ExactSum
from matrixdp.training.lots.fast_sum import sum_of_lot
from matrixdp.training.lots.lot import Division, Lot
from matrixdp.training.lots.records import RecordSource, TensorRecords
from matrixdp.training.lots.sampling import Coins, drawn_records
from matrixdp.training.lots.unit_records import UnitLosses, UnitRecords, units_in_turn
from matrixdp.training.model.compiled import uncompiled
from matrixdp.training.model.trainable import Trainable
from matrixdp.training.noise.noisy_step import NoisyStep
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.ranks.facts import facts_of_data, facts_of_model
from matrixdp.training.ranks.group import Point, RankGroup, Ranks, agree

__all__ = ["Steps"]

# So often, in steps, ranks compare their weights: it takes about a second for a billion of them.
_COMPARED = 100


class _Open(NamedTuple):
    """A lot that was drawn, its records, and what raises if the weights are not finite."""

    lot: Lot
    source: RecordSource
    numbers: NDArray[np.int64]
    check_weights: Callable[[], None]


class Steps:
    """Takes steps, each of them once, and none before it is counted as spent.

    Parameters
    ----------
    model : nn.Module
        The model.
    losses : callable
        The losses of a batch.
    plan : TrainingPlan
        The plan.
    trainable : Trainable
        The parameters.
    account : StepAccount
        Counts the steps.
    coins : Coins
        Draw the lots.
    end : NoisyStep
        Noise and optimisers.
    ranks : Ranks
        The processes that take the same steps.
    mode : {"fast", "exact"}
        How gradients are formed.
    restart : bool
        Whether steps that others have spent need no checkpoint.
    debug : bool
        Whether to raise if a loss or a gradient is not finite.
    """

    def __init__(
        self,
        model: nn.Module,
        losses: Losses,
        plan: TrainingPlan,
        *,
        trainable: Trainable,
        account: StepAccount,
        coins: Coins,
        end: NoisyStep,
        ranks: Ranks,
        mode: Mode,
        restart: bool,
        debug: bool,
    ) -> None:
        self._plan = plan
        self._of_units: dict[int, UnitLosses] = {}  # each holds the losses, so ids stay theirs
        self.losses = losses
        self.check = ModelCheck(model, trainable, views=plan.rows, debug=debug)
        self._model = model
        self._trainable = trainable
        self._account = account
        self._coins = coins
        self._end = end
        self._ranks = ranks
        self._mode = mode
        self._restart = restart
        self._debug = debug
        # Threads must neither spend one step for two lots, nor take two steps with one lot.
        self._lock = threading.RLock()
        self._open: _Open | None = None
        self._first = 0  # step since training has begun or was resumed

    @property
    def losses(self) -> Losses:
        """The user's losses of a batch."""
        return self._losses

    @losses.setter
    def losses(self, losses: Losses) -> None:
        units, views = self._plan.units, self._plan.views
        self._losses = self._clipped = losses
        if units is not None:
            # The same again for the same losses: what was checked is known by its identity.
            made = UnitLosses(losses, units.most_records, views)
            self._clipped = self._of_units.setdefault(id(losses), made)

    def begin(self, data: Any, source: RecordSource, *, is_release: bool) -> None:
        """Check everything before steps on some data are spent, on every rank."""
        self._ranks.together(self._at("begin"), partial(self._begin, source))
        self._agree_on(data, source)
        self._first = self._account.spent
        if is_release:
            records = source.source if isinstance(source, UnitRecords) else source
            tensors = records.tensors if isinstance(records, TensorRecords) else (data,)
            account = self._account  # alone, or the training would keep its own data alive
            release = Release(account.run, self._plan, lambda: account.spent)
            warn_if_repeated(release, [*self._trainable, *tensors])

    def _begin(self, source: RecordSource) -> None:
        self._account.check_resumed(restart=self._restart)
        self._account.check_not_over()
        self._check_ready()
        self._trainable.finite_check()()
        self._gradients(source)

    def _agree_on(self, data: Any, source: RecordSource) -> None:
        """Raise unless all ranks have the same weights, and records in the same order."""
        self._agree()
        if isinstance(self._ranks, RankGroup):
            look = partial(facts_of_data, data, source, self._ranks.secret())
            agree(self._ranks, self._account.spent, self._ranks.together(self._at("agree"), look))

    def _agree(self) -> None:
        """Raise unless all ranks have the same weights."""
        if self._ranks.size > 1:
            agree(self._ranks, self._account.spent, facts_of_model(self._model))

    def _at(self, name: str) -> Point:
        return Point(name, self._account.spent)

    def lots(self, source: RecordSource) -> Iterator[Lot]:
        """Return a lot for every step that is left."""
        while self._account.left > 0:
            with self._lock:
                # Another loop may have opened a lot; it stays spent.
                self._open = None
                opened = self._opened(source)
                self._open = opened
            yield opened.lot
            if self._open is opened:
                raise InvalidParameterError(
                    "training.step(lot) was not called for the last lot: call it once for each "
                    "lot, also for an empty one"
                )

    def take(self, lot: Lot, size: int) -> None:
        """Take the step of a lot, in batches of so many records at most."""
        with self._lock:
            opened = self._open
            if opened is None or opened.lot is not lot:
                raise InvalidParameterError(
                    "this lot was taken already, was given up for a later one, or belongs to "
                    "another training: call training.step(lot) once for each lot of "
                    "training.lots(...)"
                )
            sums = self._ranks.together(self._at("sum"), partial(self._checked_sum, opened, size))
            # Before the noise: no lot may come to two steps.
            self._open = None
            self._end.take(sums, lot.step)

    def captured(self, source: TensorRecords, size: int) -> CapturedSum:
        """Return the sum of lots in batches of a few sizes, on a GPU as CUDA graphs."""
        return self._ranks.together(self._at("begin"), partial(self._captured, source, size))

    def _captured(self, source: TensorRecords, size: int) -> CapturedSum:
        division = self._division(size)
        gradients = self._gradients(source, division)
        if gradients is None:
            raise InvalidParameterError(
                f"mode={self._mode!r} runs one record at a time, which is not captured: use the "
                "loop over training.lots(...), or mode='fast'"
            )
        with uncompiled(), torch.enable_grad():
            return CapturedSum(
                *(self._model, gradients, self._trainable, source),
                division=division,
                views=self._plan.rows,
                debug=self._debug,
            )

    def take_captured(self, total: CapturedSum, source: RecordSource, losses: Losses) -> None:
        """Take the next step by a captured sum of some losses."""
        with self._lock:
            self._open = None
            self._ranks.together(self._at("begin"), partial(self._check_captured, total, losses))
            opened = self._opened(source)
            sums = self._ranks.together(self._at("sum"), partial(_captured_sum, total, opened))
            self._end.take(sums, opened.lot.step)

    def _check_captured(self, total: CapturedSum, losses: Losses) -> None:
        self._account.check_resumed(restart=self._restart)
        self._account.check_left()
        total.check_unchanged()
        if self.losses is not losses:
            raise InvalidParameterError(
                "training.losses was set after the step was captured, which repeats what the "
                "former losses did: call training.captured_step(...) again"
            )

    def give_up(self) -> None:
        """Let go of a lot that was drawn and never came to its step; it stays spent."""
        with self._lock:
            self._open = None

    def _opened(self, source: RecordSource) -> _Open:
        """Spend a step, and draw its lot."""
        check_weights = self._ranks.together(self._at("ready"), self._checked_weights)
        number = self._account.spent
        # After the first step, too: it tells whether optimisers do the same.
        if number % _COMPARED == 0 or number == self._first + 1:
            self._agree()
        # Before the lot is drawn: whatever happens from here on depends on its records, also
        # whether it is given up, or the process dies.
        self._account.spend()
        rate = self._plan.exact_rate
        numbers = drawn_records(self._coins, self._plan.population, rate, number)
        if isinstance(source, UnitRecords):
            source = source.drawn(numbers, self._coins, number)
        return _Open(Lot(number), source, numbers, check_weights)

    def _checked_weights(self) -> Callable[[], None]:
        self._check_ready()
        return self._trainable.finite_check()

    def _checked_sum(self, opened: _Open, size: int) -> Sums:
        self._check_ready()
        self._account.check_process()
        division = self._division(size)
        gradients = self._gradients(opened.source, division)
        with uncompiled(), torch.enable_grad():
            sums = self._sum_of(opened, gradients, division)
        # No sooner: a GPU knows this long before the sum is there, but not when it is begun.
        opened.check_weights()
        return sums

    def _sum_of(self, opened: _Open, gradients: BatchGradients | None, division: Division) -> Sums:
        source, numbers, plan = opened.source, opened.numbers, self._plan
        if gradients is not None:
            options: Any = {"views": plan.rows, "device": self._trainable.device}
            return sum_of_lot(gradients, source, numbers, division, **options)
        options = {"views": plan.rows, "debug": self._debug}
        exact = ExactSum(self._model, self._losses, self._trainable, **options)
        if isinstance(source, UnitRecords):
            return exact(source.one_by_one(plan.views) if len(numbers) else ())
        return exact(source.batches(list(numbers[:, None]), plan.views))

    def _division(self, size: int) -> Division:
        plan = self._plan
        return Division(plan.population, plan.lot_size, size, plan.rows)

    def _gradients(
        self, source: RecordSource, division: Division | None = None
    ) -> BatchGradients | None:
        """Return how gradients of batches are formed; check it if they or their sizes are new.

        None in the mode exact.
        """
        if self._mode == "exact":
            return None
        chosen = self.check.known(self._clipped, source.collate)
        if chosen is None:
            with untouched(self._model):  # a data set may draw random numbers
                draws = made_up_batches(source, self._plan.rows)
            chosen = self.check.run(self._clipped, draws, source.collate)
        if division is not None:
            self.check.check_size(chosen, division.sizes[-1])
        return chosen.gradients

    def check_on(self, source: RecordSource) -> None:
        """Check losses and model on records that are not private; the mode exact needs no check."""
        if self._plan.units is not None:
            units = units_in_turn(source, self._plan.units)
            source = units.drawn(np.arange(len(units)), self._coins, 0)
        draws = own_batches(source, self._plan.rows, self._plan.unit)
        if self._mode == "fast":
            self.check.run(self._clipped, draws, source.collate)

    def _check_ready(self) -> None:
        """Raise if a step could not be taken, before it is spent."""
        check_not_inference()
        self._trainable.check_unchanged()


def _captured_sum(total: CapturedSum, opened: _Open) -> Sums:
    with uncompiled(), torch.enable_grad():
        sums = total(opened.numbers)
    opened.check_weights()
    return sums
