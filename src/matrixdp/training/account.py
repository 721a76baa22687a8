"""How many steps of a plan are spent, with a spending record or without, across checkpoints."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.processes import current_process
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.spending import SpendingRecord

__all__ = ["State", "StepAccount"]

State = dict[str, str | int | None]


class StepAccount:
    """The steps of a plan: how many are spent, and that no more than planned are.

    Parameters
    ----------
    plan : TrainingPlan
        The plan.
    seed : int or None
        Of an experiment; None is a release.
    mode : str
        How gradients are added up: the guarantee is for one mode in all steps.
    path : Path or None
        The spending record, if there is one.
    """

    def __init__(self, plan: TrainingPlan, seed: int | None, mode: str, path: Path | None) -> None:
        self._plan = plan
        self._seed = seed
        self._mode = mode
        self._record = None if path is None else _opened_record(path, plan, seed, mode)
        self._process = current_process()
        self._unrecorded = 0  # steps spent, where there is no record to count them
        self._run = secrets.token_hex(16) if self._record is None else self._record.run

    @property
    def spent(self) -> int:
        """How many steps were spent, those of earlier processes in the record included."""
        return self._unrecorded if self._record is None else self._record.spent

    @property
    def left(self) -> int:
        """How many steps the plan has left."""
        return self._plan.steps - self.spent

    def spend(self) -> None:
        """Count a step, in the record first.

        Raises
        ------
        InvalidParameterError
            In a forked child of a release.
        BudgetExceededError
            If no step is left.
        """
        self.check_process()
        self.check_left()
        if self._record is None:
            self._unrecorded += 1
        else:
            self._record.spend()

    def check_process(self) -> None:
        """Raise in a forked child of a release: the parent does not see what is done there.

        Raises
        ------
        InvalidParameterError
            Which says where to make the training.
        """
        if self._seed is None and self._process != current_process():
            raise InvalidParameterError(
                "this training was made in another process, which may take the same steps: make "
                "PrivateTraining in the process that trains"
            )

    def check_left(self) -> None:
        """Raise if no step is left."""
        if not self.left > 0:
            raise BudgetExceededError(
                f"all steps={self._plan.steps} of the plan are spent: further steps would need a "
                "plan and a budget of their own"
            )

    @property
    def state(self) -> State:
        """What a checkpoint has to remember."""
        return {
            "plan": self._plan.digest,
            "mode": self._mode,
            "run": self._run,
            "seed": self._seed,
            "steps_spent": self.spent,
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint; steps that were spent after it stay spent.

        Raises
        ------
        InvalidParameterError
            If it belongs to another plan, mode, seed or run, or there is no record.
        """
        own = self.state
        same = ("plan", "mode", "seed")
        if not isinstance(state, Mapping):
            raise InvalidParameterError(
                f"the checkpoint is a {type(state).__name__}: pass what state_dict() returned"
            )
        if set(state) != set(own) or any(state[key] != own[key] for key in same):
            raise InvalidParameterError(
                "the checkpoint belongs to another plan, mode or seed: resume with those that it "
                "was made with"
            )
        spent = state["steps_spent"]
        whole = isinstance(spent, int) and not isinstance(spent, bool)
        if not (whole and 0 <= spent <= self._plan.steps):
            raise InvalidParameterError(
                f"steps_spent={spent!r} of the checkpoint must be a whole number from 0 to "
                f"steps={self._plan.steps}: pass what state_dict() returned"
            )
        if self._record is None:
            # An experiment repeats the very same steps; a release would draw others in their place.
            if self._seed is None:
                raise InvalidParameterError(
                    "a checkpoint does not know which steps were spent after it: resume with "
                    "PrivateTraining(..., record=path), with the record that the run began with"
                )
            self._unrecorded = spent
        elif state["run"] != self._run or not spent <= self.spent:
            raise InvalidParameterError(
                "the checkpoint does not belong to this spending record, or the record lost "
                "steps: resume with the record that the run began with"
            )


def _opened_record(path: Path, plan: TrainingPlan, seed: int | None, mode: str) -> SpendingRecord:
    # A record of an experiment does not pass for that of a release, nor the other way round.
    randomness = "secure" if seed is None else f"seed {seed}"
    return SpendingRecord(path, plan=plan.digest, mode=mode, randomness=randomness)
