"""``matrixdp plan``: the error of a budget, or the epsilon of an error, before it is spent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

import typer

from matrixdp.cli.commands.plan.figure import drawn_errors
from matrixdp.cli.commands.plan.query import KindOption, Plannable, QueryOptions, asked_query
from matrixdp.cli.commands.query.attributes import (
    BinsOption,
    CategoriesOption,
    OfOption,
    OptionalByOption,
    OptionalOrderOption,
    OptionalWaysOption,
    OtherOption,
)
from matrixdp.cli.commands.query.options import Count, Lower, Norm, Upper
from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    Figure,
    Force,
    OptionalColumnsOption,
    OptionalEpsilonOption,
    OptionalNeighbouringOption,
    OptionalSensitivityOption,
    OptionalShapeOption,
    Shape,
    StepsOption,
    number_option,
)
from matrixdp.cli.shared.output import (
    check_file,
    file_format,
    preview_fields,
    print_json,
    print_table,
)
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import ErrorMeasure, plan_for_budget, plan_for_error
from matrixdp.rounding import shown_down, shown_exactly, shown_up, sqrt_up

__all__ = ["plan"]

_CURVES = {"entry": "standard error of an entry", "largest": "largest error, probability 0.95"}


def plan(
    delta: DeltaOption,
    shape: OptionalShapeOption = None,
    kind: KindOption = None,
    columns: OptionalColumnsOption = None,
    neighbouring: OptionalNeighbouringOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    count: Count = None,
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
    by: OptionalByOption = None,
    order: OptionalOrderOption = None,
    of: OfOption = None,
    ways: OptionalWaysOption = None,
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
    sensitivity: OptionalSensitivityOption = None,
    steps: StepsOption = 1,
    figure: Figure = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Answer "what error do I get for this epsilon?" or "which epsilon does this error need?".

    With both an epsilon and an error, fail with exit code 3 if the error needs more than epsilon.
    """
    check_file(figure, ".png", ".svg", force=force)
    wanted = _wanted(epsilon, entry_error, frobenius_error, largest_error)
    # With an error, epsilon is a limit and not what is spent.
    limit = None if epsilon is None else Budget(epsilon, delta)
    bounds = (columns, norm, lower, upper, count)
    options = QueryOptions(neighbouring, *bounds, categories, bins, other, by, order, of, ways)
    if kind is None:
        if shape is None or options.given:
            raise InvalidParameterError(
                "pass --shape, or --query with the options of that command of `query`: "
                "--neighbouring, --columns, bounds and what is counted by belong to --query"
            )
        planned = _of_shape(
            shape, 1.0 if sensitivity is None else sensitivity, steps, delta, limit, wanted
        )
    else:
        if shape is not None or sensitivity is not None:
            raise InvalidParameterError(
                "--query says the shape and the sensitivity: leave them out"
            )
        planned = _of_query(asked_query(kind, options), steps, delta, limit, wanted)
    if figure is not None:
        write_all([(figure, planned.drawn(delta, file_format(figure)))], force=force)
        typer.echo(f"wrote {figure}", err=True)
    if as_json:
        print_json(planned.fields)
    else:
        planned.show()


_Wanted = tuple[ErrorMeasure, float] | None


def _wanted(epsilon: float | None, *errors: float | None) -> _Wanted:
    """Return the measure and the error that are asked for; there is at most one."""
    measures = (ErrorMeasure.ENTRY, ErrorMeasure.FROBENIUS, ErrorMeasure.LARGEST)
    found = [
        (measure, error)
        for measure, error in zip(measures, errors, strict=True)
        if error is not None
    ]
    if len(found) > 1 or (not found and epsilon is None):
        raise InvalidParameterError(
            "pass --epsilon, or one of --entry-error, --frobenius-error and --largest-error"
        )
    return found[0] if found else None


@dataclass(frozen=True)
class _Planned:
    """What a plan answers, in fields and in words, and what its figure needs."""

    fields: dict[str, Any]
    show: Callable[[], None]
    epsilon: float
    steps: int
    at_one: dict[str, float]
    title: str
    ranges: float | None = None

    def drawn(self, delta: float, kind: str) -> bytes:
        return drawn_errors(
            self.at_one,
            epsilon=self.epsilon,
            delta=delta,
            steps=self.steps,
            ranges=self.ranges,
            title=self.title,
            file_format=kind,
        )


def _of_shape(
    shape: Shape,
    sensitivity: float,
    steps: int,
    delta: float,
    limit: Budget | None,
    wanted: _Wanted,
) -> _Planned:
    size = {"rows": shape.rows, "columns": shape.columns}
    if wanted is None:
        budget = cast("Budget", limit)
        found = plan_for_budget(budget, **size, sensitivity=sensitivity, steps=steps)
        epsilon, shown = budget.epsilon, shown_exactly(budget.epsilon)
    else:
        measure, error = wanted
        found = plan_for_error(
            error, measure, delta=delta, **size, sensitivity=sensitivity, steps=steps
        )
        _refuse_above(limit, found.budget, found.epsilon_at, error)
        # A price, rounded up: entered as --epsilon it buys the error.
        epsilon = found.epsilon_at(delta)
        shown = shown_up(epsilon)
    errors = {measure.value: found.error(measure) for measure in ErrorMeasure}
    fields = {
        "shape": [found.rows, found.columns],
        "sensitivity": found.sensitivity,
        "steps": found.steps,
        "epsilon": epsilon,
        "delta": delta,
        "mu_per_step": found.mu,
        "noise_scale": found.noise_scale,
        "error": errors,
    }
    # The sensitivity down and the noise up, so that the one printed covers the other.
    title = (
        f"{found.steps} x a {found.rows} by {found.columns} matrix, sensitivity "
        f"{shown_down(found.sensitivity)}"
    )
    return _Planned(
        fields,
        lambda: print_table(
            ["", "each release"],
            [
                ["noise scale", shown_up(found.noise_scale)],
                ["standard error of one entry", shown_up(errors["entry"])],
                ["r.m.s. Frobenius error", shown_up(errors["frobenius"])],
                ["largest error, with probability 0.95", shown_up(errors["largest"])],
            ],
            title=f"{title}\nepsilon {shown} at delta {shown_exactly(delta)} in all",
        ),
        epsilon,
        steps,
        {name: errors[key] * found.mu for key, name in _CURVES.items()},
        title,
    )


def _of_query(
    query: Plannable, steps: int, delta: float, limit: Budget | None, wanted: _Wanted
) -> _Planned:
    if wanted is None:
        budget = cast("Budget", limit)
        epsilon, shown = budget.epsilon, shown_exactly(budget.epsilon)
    else:
        each = query.budget_for(wanted[1], wanted[0], delta=delta)
        budget = Budget.from_mu(sqrt_up(each.mu_squared * steps), delta)
        # A price, rounded up: entered as --epsilon it buys the error.
        epsilon = budget.proven_epsilon
        _refuse_above(limit, budget, lambda _: epsilon, wanted[1])
        shown = shown_up(epsilon)
    preview = query.preview(budget.split(steps)[0])
    errors = {measure.value: preview.error(measure) for measure in ErrorMeasure}
    lengths = preview.ranges.lengths
    return _Planned(
        {
            **preview_fields(preview),
            "steps": steps,
            "epsilon": epsilon,
            "delta": delta,
            "error": errors,
        },
        lambda: typer.echo(
            f"{steps} x the release below\nepsilon {shown} at delta {shown_exactly(delta)} in all\n"
            f"{preview}"
        ),
        epsilon,
        steps,
        {name: errors[key] * preview.guarantee.mu for key, name in _CURVES.items()},
        preview.query,
        None if preview.ranges.of_each_record else float(lengths.min()),
    )


def _refuse_above(
    limit: Budget | None, found: Budget, epsilon_at: Callable[[float], float], error: float
) -> None:
    # Budgets compare by worth, exactly: the epsilon of the same worth is rounded.
    if limit is not None and found > limit:
        raise BudgetExceededError(
            f"an error of {error!r} needs epsilon={epsilon_at(limit.delta)!r} at "
            f"delta={limit.delta!r}, more than epsilon={limit.epsilon!r}: allow a larger error or "
            "a larger epsilon"
        )
