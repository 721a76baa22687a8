"""``matrixdp query``: from a file of records to a released sum, moment matrix or table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    Force,
    MuOption,
    OptionalEpsilonOption,
    budget_from,
    number_option,
    whole_number_option,
)
from matrixdp.cli.output import print_json
from matrixdp.cli.query_source import RecordFile
from matrixdp.cli.streams import reporting_release
from matrixdp.cli.workload_options import NeighbouringOption
from matrixdp.errors import InvalidParameterError
from matrixdp.files.atomic import check_target
from matrixdp.files.decimals import nearest_float
from matrixdp.files.matrices import FORMATS
from matrixdp.files.overwriting import check_inputs_survive
from matrixdp.files.releases import save_release
from matrixdp.files.statement import statement_path
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.queries import (
    Bins,
    Categories,
    ContingencyTable,
    Covariance,
    Gram,
    Mean,
    PublicBounds,
    Query,
    Sum,
    TouchedRecords,
)

__all__ = ["app"]

app = command_group("Sums, moments and tables of records, released with exact noise.")

Source: TypeAlias = Annotated[
    Path, typer.Argument(metavar="IN", help="Records: .csv with names in row 1, .parquet or .npy.")
]
Target: TypeAlias = Annotated[
    Path, typer.Argument(metavar="OUT", help="The .csv, .npy or .npz file to make.")
]
Columns: TypeAlias = Annotated[
    str, typer.Option("--columns", help="Names of columns (.npy: numbers from 0), with commas.")
]
Norm: TypeAlias = Annotated[
    float | None, number_option("--norm", "Clip every record to this Euclidean norm.")
]
Lower: TypeAlias = Annotated[
    str | None, typer.Option("--lower", help="Clamp columns from below: a number, or one for each.")
]
Upper: TypeAlias = Annotated[
    str | None, typer.Option("--upper", help="Clamp columns from above: a number, or one for each.")
]
Count: TypeAlias = Annotated[
    int | None,
    whole_number_option(
        "--count", "Divide by this public number; under replace it is the number of records."
    ),
]


@dataclass(frozen=True)
class _Job:
    """What all commands need: files, and what is to be guaranteed."""

    source: Path
    target: Path
    budget: Budget
    force: bool
    as_json: bool

    def release(
        self, query: Query, data: Any, columns: Sequence[str], index: Sequence[str]
    ) -> None:
        """Release the answer to a query, with public labels, and report it."""
        # Everything that can be refused without reading the records is refused first.
        self._check_target()
        mechanism = IMGM(query.sensitivity, self.budget)
        # The labels were typed by the user, so that they are public.
        labelled = MatrixFile(query.evaluate(data), columns=list(columns), index=list(index))
        released = mechanism.release(labelled)
        save_release(released, self.target, force=self.force, query=str(query))
        with reporting_release(self.statement):
            self._report(query, released)

    @property
    def statement(self) -> Path:
        """Where the statement goes."""
        return statement_path(self.target)

    def _check_target(self) -> None:
        if self.target.suffix not in FORMATS:
            raise InvalidParameterError(
                f"{self.target} is of format {self.target.suffix!r}: use one of "
                f"{', '.join(FORMATS)}"
            )
        check_inputs_survive([self.target, self.statement], [self.source])
        for path in (self.target, self.statement):
            check_target(path, force=self.force)

    def _report(self, query: Query, released: Release) -> None:
        guarantee = released.guarantee
        if self.as_json:
            print_json(
                {
                    "output": str(self.target),
                    "statement": str(self.statement),
                    "query": str(query),
                    "epsilon": guarantee.epsilon,
                    "delta": guarantee.delta,
                    "mu": guarantee.mu,
                    "neighbouring": guarantee.neighbouring,
                    "shape": list(released.shape),
                }
            )
            return
        for line in (guarantee, query, f"wrote {self.target} and {self.statement}"):
            typer.echo(str(line), err=True)


@app.command("sum")
def sum_(
    source: Source,
    target: Target,
    columns: Columns,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the sum of the records."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    file, bounds = _file(source, columns), _bounds(columns, norm, lower, upper)
    query = Sum(bounds, checked_neighbouring(neighbouring))
    job.release(query, file.numbers(), file.columns, ["sum"])


@app.command()
def mean(
    source: Source,
    target: Target,
    columns: Columns,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    count: Count = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the sum of the records over a public count."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    file, bounds = _file(source, columns), _bounds(columns, norm, lower, upper)
    query = Mean(bounds, checked_neighbouring(neighbouring), _public_count(count))
    job.release(query, file.numbers(), file.columns, ["mean"])


@app.command()
def gram(
    source: Source,
    target: Target,
    columns: Columns,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the Gram matrix of the records, the sum of x x^T."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    file, bounds = _file(source, columns), _bounds(columns, norm, lower, upper)
    query = Gram(bounds, checked_neighbouring(neighbouring))
    job.release(query, file.numbers(), file.columns, file.columns)


@app.command()
def covariance(
    source: Source,
    target: Target,
    columns: Columns,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    count: Count = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release the covariance matrix of the records about their mean, over a public count."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    file, bounds = _file(source, columns), _bounds(columns, norm, lower, upper)
    query = Covariance(bounds, checked_neighbouring(neighbouring), _public_count(count))
    job.release(query, file.numbers(), file.columns, file.columns)


@app.command()
def touched(
    source: Source,
    target: Target,
    columns: Columns,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release how many records the bounds change: paid for like any other question."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    file, bounds = _file(source, columns), _bounds(columns, norm, lower, upper)
    query = TouchedRecords(bounds, checked_neighbouring(neighbouring))
    job.release(query, file.numbers(), ["touched"], ["records"])


@app.command()
def histogram(
    source: Source,
    target: Target,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    categories: Annotated[
        list[str] | None,
        typer.Option("--categories", metavar="NAME=A,B,..", help="Count by these values."),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option("--bins", metavar="NAME=EDGES", help="Count by these bins: 0,18,65,inf."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release a table of counts by categories and bins; categories come first."""
    job = _Job(source, target, budget_from(epsilon, delta, mu), force, as_json)
    attributes: list[Categories | Bins] = [
        *(Categories(name, values) for name, values in map(_named_list, categories or [])),
        *(Bins(name, _edges(values)) for name, values in map(_named_list, bins or [])),
    ]
    query = ContingencyTable(attributes, checked_neighbouring(neighbouring))
    file = RecordFile(source, tuple(attribute.name for attribute in attributes))
    data = file.values([isinstance(attribute, Bins) for attribute in attributes])
    job.release(query, data, query.columns, query.index)


def _file(source: Path, columns: str) -> RecordFile:
    return RecordFile(source, tuple(name.strip() for name in columns.split(",")))


def _bounds(columns: str, norm: float | None, lower: str | None, upper: str | None) -> PublicBounds:
    if norm is None and lower is None and upper is None:
        raise InvalidParameterError(
            "pass --norm, or --lower and --upper, or all three: without a public bound one record "
            "could change the answer by any amount"
        )
    sides = [None if text is None else _numbers(text) for text in (lower, upper)]
    return PublicBounds(len(columns.split(",")), norm=norm, lower=sides[0], upper=sides[1])


def _numbers(text: str) -> float | list[float]:
    try:
        numbers = [nearest_float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError(f"{text!r} is not a number, nor numbers with commas") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _edges(values: Sequence[str]) -> list[float]:
    # Unlike other numbers, the outer edges may be infinite; `Bins` checks their order.
    try:
        return [float(value) for value in values]
    except ValueError:
        raise InvalidParameterError(
            f"{','.join(values)!r} are not edges: pass increasing numbers with commas"
        ) from None


def _named_list(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise InvalidParameterError(f"{text!r} must be NAME=VALUES, such as age=0,18,65")
    return name.strip(), [value.strip() for value in values.split(",")]


def _public_count(count: int | None) -> int:
    if count is None:
        raise InvalidParameterError(
            "pass --count, a public number to divide by: under add-remove the number of records "
            "is private. To pay for it, release `query sum` and a `query histogram` of one bin, "
            "each with a part of `budget split`"
        )
    return count
