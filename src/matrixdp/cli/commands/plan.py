"""``matrixdp plan``: the error of a budget, or the epsilon of an error, before it is spent."""

from typing import Annotated

from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    OptionalEpsilonOption,
    SensitivityOption,
    ShapeOption,
    StepsOption,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["plan"]


def plan(
    shape: ShapeOption,
    delta: DeltaOption,
    epsilon: OptionalEpsilonOption = None,
    entry_error: Annotated[
        float | None, number_option("--entry-error", "Wanted standard error of one entry.")
    ] = None,
    frobenius_error: Annotated[
        float | None, number_option("--frobenius-error", "Wanted r.m.s. Frobenius error.")
    ] = None,
    largest_error: Annotated[
        float | None,
        number_option("--largest-error", "Wanted bound on all errors, with probability 0.95."),
    ] = None,
    sensitivity: SensitivityOption = 1.0,
    steps: StepsOption = 1,
    as_json: AsJson = False,
) -> None:
    """Answer "what error do I get for this epsilon?" or "which epsilon does this error need?".

    With both an epsilon and an error, fail with exit code 3 if the error needs more than epsilon.
    """
    wanted = [
        (measure, error)
        for measure, error in (
            (ErrorMeasure.ENTRY, entry_error),
            (ErrorMeasure.FROBENIUS, frobenius_error),
            (ErrorMeasure.LARGEST, largest_error),
        )
        if error is not None
    ]
    # With an error, epsilon is a limit and not what is spent.
    limit = None if epsilon is None else Budget(epsilon, delta)
    if len(wanted) == 1:
        measure, error = wanted[0]
        found = plan_for_error(
            error,
            measure,
            delta=delta,
            rows=shape.rows,
            columns=shape.columns,
            sensitivity=sensitivity,
            steps=steps,
        )
        _refuse_above(limit, found, error)
        # A price, rounded up: entered as --epsilon it buys the error.
        price = found.epsilon_at(delta)
        _show(found, price, delta, shown_up(price), as_json=as_json)
    elif limit is not None and not wanted:
        found = plan_for_budget(
            limit, rows=shape.rows, columns=shape.columns, sensitivity=sensitivity, steps=steps
        )
        _show(found, limit.epsilon, delta, shown_exactly(limit.epsilon), as_json=as_json)
    else:
        raise InvalidParameterError(
            "pass --epsilon, or one of --entry-error, --frobenius-error and --largest-error"
        )


def _refuse_above(limit: Budget | None, found: Plan, error: float) -> None:
    # Budgets compare by worth, exactly: the epsilon of the same worth is rounded.
    if limit is not None and found.budget > limit:
        raise BudgetExceededError(
            f"an error of {error!r} needs epsilon={found.epsilon_at(limit.delta)!r} at "
            f"delta={limit.delta!r}, more than epsilon={limit.epsilon!r}: allow a larger error or "
            "a larger epsilon"
        )


def _show(found: Plan, epsilon: float, delta: float, shown_epsilon: str, *, as_json: bool) -> None:
    errors = {measure.value: found.error(measure) for measure in ErrorMeasure}
    if as_json:
        print_json(
            {
                "shape": [found.rows, found.columns],
                "sensitivity": found.sensitivity,
                "steps": found.steps,
                "epsilon": epsilon,
                "delta": delta,
                "mu_per_step": found.mu,
                "noise_scale": found.noise_scale,
                "error": errors,
            }
        )
        return
    print_table(
        ["", "each release"],
        [
            ["noise scale", shown_up(found.noise_scale)],
            ["standard error of one entry", shown_up(errors["entry"])],
            ["r.m.s. Frobenius error", shown_up(errors["frobenius"])],
            ["largest error, with probability 0.95", shown_up(errors["largest"])],
        ],
        title=(
            # The sensitivity down and the noise up, so that the one printed covers the other.
            f"{found.steps} x a {found.rows} by {found.columns} matrix, sensitivity "
            f"{shown_down(found.sensitivity)}\nepsilon {shown_epsilon} at delta "
            f"{shown_exactly(delta)} in all"
        ),
    )
