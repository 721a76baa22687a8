"""The progress of a training: what was spent, and what will be."""

from dataclasses import dataclass

from matrixdp.markup import element
from matrixdp.privacy import SampledPlan, plan_epsilon
from matrixdp.rounding import shown_up
from matrixdp.training.plan import TrainingPlan

__all__ = ["TrainingProgress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """How far a training has come.

    Made by ``PrivateTraining.progress``.

    Attributes
    ----------
    plan : TrainingPlan
        The plan.
    steps_spent : int
        How many of its steps are spent.
    """

    plan: TrainingPlan
    steps_spent: int

    @property
    def steps_left(self) -> int:
        """How many steps the plan has left."""
        return self.plan.steps - self.steps_spent

    @property
    def epochs_spent(self) -> float:
        """How often each record was used so far, on average."""
        return float(self.steps_spent * self.plan.exact_rate)

    @property
    def epochs_left(self) -> float:
        """How often each record will be used, on average."""
        return float(self.steps_left * self.plan.exact_rate)

    @property
    def epsilon_spent(self) -> float:
        """The epsilon of the steps so far at the plan's delta, as if only these had been planned.

        Some time is needed to find it. The guarantee of a run that stops early stays that of the
        whole plan, unless the number of steps was chosen without looking at what came out.
        """
        if not self.steps_spent:
            return 0.0
        spent = SampledPlan(
            noise_multiplier=self.plan.noise_multiplier,
            sampling_rate=self.plan.sampling_rate,
            steps=self.steps_spent,
            neighbouring="add-remove",
        )
        return plan_epsilon(spent, self.plan.delta, self.plan.accountant)

    def _repr_html_(self) -> str:
        bar = element("progress", value=self.steps_spent, max=self.plan.steps)
        return element("div", bar, element("p", str(self)), class_="matrixdp")

    def __str__(self) -> str:
        """Say it in one line, without the epsilon so far, which takes time."""
        plan = self.plan
        return (
            f"{self.steps_spent} of {plan.steps} steps and {self.epochs_spent:.4g} of "
            f"{plan.epochs:.4g} epochs are spent; the whole plan costs epsilon "
            f"{shown_up(plan.epsilon, 4)} at delta {shown_up(plan.delta, 4)}"
        )
