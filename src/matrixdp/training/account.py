"""The steps of a plan that are spent, with a spending file or without, across checkpoints."""

import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.privacy.payment import RunPayer, StepCounter
from matrixdp.processes import current_process
from matrixdp.training.plan import TrainingPlan
from matrixdp.training.ranks.group import ALONE, Ranks
from matrixdp.training.ranks.spending import shared_counter
from matrixdp.training.spending import SpendingFile

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
    spending : Path, RunPayer or None
        The spending file or the run of a ledger, if there is one.
    ranks : Ranks, optional
        All that take the same steps; the first one writes.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        seed: int | None,
        mode: str,
        spending: Path | RunPayer | None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._plan = plan
        self._seed = seed
        self._mode = mode
        self._counter = shared_counter(ranks, partial(_counter, spending, plan, seed, mode))
        self._process = current_process()
        self._unwritten = 0  # steps spent, where there is no file to count them
        self._begun = False  # whether this process has spent a step, or loaded a checkpoint
        self._resumed = False  # and nothing was spent since
        self._run = secrets.token_hex(16) if self._counter is None else self._counter.run

    @property
    def spent(self) -> int:
        """How many steps were spent, those of earlier processes in the file included."""
        return self._unwritten if self._counter is None else self._counter.spent

    @property
    def left(self) -> int:
        """How many steps the plan has left."""
        return self._plan.steps - self.spent

    @property
    def run(self) -> str:
        """The name of the run, which checkpoints and the spending file know it by."""
        return self._run

    def check_resumed(self, *, restart: bool) -> None:
        """Raise if steps are counted whose checkpoint was not loaded, unless that is wanted.

        Raises
        ------
        InvalidParameterError
            Which says how to go on.
        """
        if self.spent and not self._begun and not restart:
            raise InvalidParameterError(
                f"the spending counts {self.spent} steps of a run whose checkpoint was not "
                "loaded: call training.load_state_dict(...) with it, or pass restart=True to train "
                "a fresh model on the steps that are left; those spent stay spent"
            )

    def check_not_over(self) -> None:
        """Raise if no step is left, unless a finished run was resumed: it has nothing to do."""
        if not self._resumed:
            self.check_left()

    def spend(self) -> None:
        """Count a step, in the file first.

        Raises
        ------
        InvalidParameterError
            In a forked child of a release.
        BudgetExceededError
            If no step is left.
        """
        self.check_process()
        self.check_left()
        self._begun, self._resumed = True, False
        if self._counter is None:
            self._unwritten += 1
        else:
            self._counter.spend()

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
            If it belongs to another plan, mode, seed or run, or there is no spending file.
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
                f"steps_spent={spent!r} of the checkpoint must be an integer from 0 to "
                f"steps={self._plan.steps}: pass what state_dict() returned"
            )
        if self._counter is None:
            # An experiment repeats the very same steps; a release would draw others in their place.
            if self._seed is None:
                raise InvalidParameterError(
                    "a checkpoint does not know which steps were spent after it: resume with "
                    "PrivateTraining(..., spending=path), with the file that the run began with"
                )
            self._unwritten = spent
        elif state["run"] != self._run or not spent <= self.spent:
            raise InvalidParameterError(
                "the checkpoint does not belong to this spending file, or the file lost "
                "steps: resume with the file that the run began with"
            )
        self._begun = self._resumed = True


def _counter(
    spending: Path | RunPayer | None, plan: TrainingPlan, seed: int | None, mode: str
) -> StepCounter | None:
    if spending is None:
        return None
    if isinstance(spending, RunPayer):
        if seed is not None:
            raise InvalidParameterError(
                f"seed={seed!r} makes an experiment, which protects nothing, so a ledger does not "
                "pay for it: leave out seed or spending"
            )
        return spending.counter(plan.sampled, plan=plan.digest, mode=mode, unit=plan.unit)
    # A spending file of an experiment does not pass for that of a release, nor the other way round.
    randomness = "secure" if seed is None else f"seed {seed}"
    return SpendingFile(spending, plan=plan.digest, mode=mode, randomness=randomness)
