"""``matrixdp budget``: what a budget is worth, whole or in parts."""

from typing import Annotated

from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    SensitivityOption,
    count_option,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import plan_for_budget
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["budget"]


def budget(
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    parts: Annotated[int | None, count_option("--parts", "Number of equal parts.")] = None,
    weight: Annotated[
        list[float] | None, number_option("--weight", "A part's weight; repeat for each part.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the mu of a budget, whole or split, and the noise scale that it needs: sensitivity / mu.

    Parts together cost the whole, however they are chosen. What is printed of a part is rounded
    down, so that entering it again never overspends. To spend a part exactly, pass the mu that
    --json prints as --mu.
    """
    whole = Budget(epsilon, delta)
    count, shown = _parts(whole, parts, weight)
    scales = [
        plan_for_budget(part, rows=1, columns=1, sensitivity=sensitivity).noise_scale
        for part in shown
    ]
    if as_json:
        print_json(
            {
                "epsilon": epsilon,
                "delta": delta,
                "mu": whole.mu,
                "sensitivity": sensitivity,
                "parts": [
                    {
                        "count": count,
                        "epsilon": part.epsilon,
                        "delta": part.delta,
                        "mu": part.mu,
                        "noise_scale": scale,
                    }
                    for part, scale in zip(shown, scales, strict=True)
                ],
            }
        )
        return
    print_table(
        ["parts", "epsilon", "delta", "mu", "noise scale"],
        [
            [
                str(count),
                # Rounded down, so that typing them in again does not overspend.
                shown_down(part.epsilon),
                shown_down(part.delta),
                shown_down(part.mu, 10),
                shown_up(scale, 10),
            ]
            for part, scale in zip(shown, scales, strict=True)
        ],
        # As entered: rounded in either direction it would be another budget.
        title=f"epsilon {shown_exactly(epsilon)} at delta {shown_exactly(delta)} in all, "
        f"sensitivity {shown_down(sensitivity, 15)}",
    )


def _parts(
    whole: Budget, parts: int | None, weights: list[float] | None
) -> tuple[int, list[Budget]]:
    """Return how many parts a row stands for, and the budgets of the rows."""
    if parts is not None and weights:
        raise InvalidParameterError("pass either --parts, or --weight once for each part")
    if weights:
        return 1, list(whole.split(weights))
    # Equal parts are all the same, so one row is enough.
    return (1, [whole]) if parts is None else (parts, list(whole.split(parts)[:1]))
