"""``matrixdp bound``: what an (epsilon, delta) budget is worth."""

from matrixdp.cli.options import AsJson, DeltaOption, EpsilonOption, SensitivityOption
from matrixdp.cli.output import print_json, print_table
from matrixdp.privacy.bound import privacy_bound
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import plan_for_budget
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["bound"]


def bound(
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show the privacy bound B(epsilon, delta) and the noise scale sensitivity / B."""
    largest_mu = privacy_bound(epsilon, delta)
    plan = plan_for_budget(Budget(epsilon, delta), rows=1, columns=1, sensitivity=sensitivity)
    if as_json:
        print_json(
            {
                "epsilon": epsilon,
                "delta": delta,
                "bound": largest_mu,
                "sensitivity": sensitivity,
                "noise_scale": plan.noise_scale,
            }
        )
        return
    print_table(
        ["epsilon", "delta", "bound", "sensitivity", "noise scale"],
        [
            [
                # As entered: rounded in either direction it would be another budget.
                shown_exactly(epsilon),
                shown_exactly(delta),
                shown_down(largest_mu, 10),
                shown_exactly(sensitivity),
                shown_up(plan.noise_scale, 10),
            ]
        ],
    )
