"""``matrixdp budget``: what a budget's shares are worth."""

from typing import Annotated

from matrixdp.cli.groups import command_group
from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    number_option,
    whole_number_option,
)
from matrixdp.cli.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.rounding import quotient_up, shown_down, shown_up

__all__ = ["app", "split"]

app = command_group("Split a privacy budget.")


@app.command("split")
def split(
    epsilon: EpsilonOption,
    delta: DeltaOption,
    parts: Annotated[int | None, whole_number_option("--parts", "Number of equal parts.")] = None,
    weight: Annotated[
        list[float] | None, number_option("--weight", "A part's weight; repeat for each part.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Split a budget into parts that together cost the whole, however they are chosen.

    What is printed of a part is rounded down, so that entering it again never overspends. To spend
    a part exactly, pass the mu that --json prints as --mu.
    """
    if (parts is None) == (not weight):
        raise InvalidParameterError("pass either --parts, or --weight once for each part")
    budget = Budget(epsilon, delta)
    # Equal parts are all the same, so one row is enough.
    shown = budget.split(parts)[:1] if parts is not None else budget.split(weight or [])
    count = parts if parts is not None else 1
    if as_json:
        print_json(
            {
                "epsilon": epsilon,
                "delta": delta,
                "mu": budget.mu,
                "parts": [
                    {"count": count, "epsilon": part.epsilon, "delta": part.delta, "mu": part.mu}
                    for part in shown
                ],
            }
        )
        return
    print_table(
        ["parts", "epsilon", "delta", "mu", "noise scale per unit sensitivity"],
        [
            [
                str(count),
                # Rounded down, so that typing them in again does not overspend.
                shown_down(part.epsilon),
                shown_down(part.delta),
                shown_down(part.mu),
                shown_up(quotient_up(1.0, part.mu)),
            ]
            for part in shown
        ],
        title=f"Parts of {budget}",
    )
