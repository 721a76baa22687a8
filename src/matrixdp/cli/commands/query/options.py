"""The options of ``matrixdp query``, and the values that they make together."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, TypeAlias

import typer

from matrixdp.cli.commands.query.files import RecordFiles
from matrixdp.cli.commands.query.layout import (
    DecimalOption,
    FillOption,
    Layout,
    MissingOption,
    NamesOption,
    ThousandsOption,
    check_fill,
    layout_from,
)
from matrixdp.cli.commands.query.output import QueryOutput
from matrixdp.cli.shared.ledgers import (
    KeysOption,
    OptionalAccountOption,
    OptionalLedgerOption,
    RequestOption,
)
from matrixdp.cli.shared.options import (
    AsJson,
    ColumnsOption,
    DatasetOption,
    DelimiterOption,
    DeltaOption,
    Force,
    MuOption,
    NeighbouringOption,
    OptionalEpsilonOption,
    OptionalUnitOption,
    PreviewOption,
    PurposeOption,
    SchedulerOption,
    ThreadsOption,
    about_from,
    budget_from,
    count_option,
    number_option,
)
from matrixdp.cli.shared.paying import paying_from
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.decimals import nearest_float
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries import Bins, Categories, PublicBounds
from matrixdp.queries.exact_sums import MOST_RECORDS

__all__ = [
    "Asked",
    "AskedOfNumbers",
    "ClippedShare",
    "Count",
    "Lower",
    "Norm",
    "Source",
    "Upper",
    "asked",
    "asked_of_numbers",
    "edges",
    "named_list",
    "public_bounds",
    "with_options_of",
]

Source: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        help="Records: text with names in row 1 (.csv, .tsv, .csv.gz), .parquet, .arrow, .npy or "
        ".zarr; a folder of .parquet files, or a pattern in quotes, 'part-*.parquet'.",
    ),
]
Target: TypeAlias = Annotated[
    Path, typer.Argument(metavar="OUT", help="The file to make: .csv, .npy, .parquet and so on.")
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
    count_option(
        "--count", "Divide by this public number; under replace it is the number of records."
    ),
]
MostRecords: TypeAlias = Annotated[
    int,
    count_option(
        "--most-records",
        "A public bound of the number of records; beyond 2**30 it costs accuracy.",
    ),
]
ClippedShare: TypeAlias = Annotated[
    float | None,
    number_option(
        "--clipped-share",
        "Spend this share of the budget on how many records the bounds change; the statement then "
        "holds that count.",
    ),
]


@dataclass(frozen=True)
class Asked:
    """What every command is given: records, what is to be guaranteed, and where the answer goes."""

    source: Path
    neighbouring: Neighbouring
    layout: Layout
    output: QueryOutput
    scheduler: str | None

    def record_file(
        self, columns: tuple[str, ...], attributes: Sequence[Categories | Bins] = ()
    ) -> RecordFiles:
        """Return some columns of the records, or raise if what missing cells count as is wrong."""
        check_fill(self.layout, columns, {each.name: each for each in attributes})
        return RecordFiles(self.source, columns, self.layout, self.scheduler)


@dataclass(frozen=True)
class AskedOfNumbers(Asked):
    """What commands on numbers are given besides: columns and public bounds."""

    columns: tuple[str, ...]
    bounds: PublicBounds
    most_records: int

    @property
    def file(self) -> RecordFiles:
        """The columns of numbers."""
        return self.record_file(self.columns)


def asked(
    source: Source,
    target: Target,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    delimiter: DelimiterOption = None,
    names: NamesOption = None,
    decimal: DecimalOption = None,
    thousands: ThousandsOption = None,
    missing: MissingOption = None,
    fill: FillOption = None,
    ledger: OptionalLedgerOption = None,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    request: RequestOption = None,
    unit: OptionalUnitOption = None,
    dataset: DatasetOption = None,
    purpose: PurposeOption = None,
    preview: PreviewOption = False,
    threads: ThreadsOption = None,
    scheduler: SchedulerOption = None,
    force: Force = False,
    as_json: AsJson = False,
) -> Asked:
    """Return what the options of every command say."""
    paying = paying_from(ledger, account, keys, request, target=target)
    budget = budget_from(epsilon, delta, mu)
    relation = checked_neighbouring(neighbouring)
    layout = layout_from(delimiter, names, decimal, thousands, missing, fill, relation)
    about = about_from(dataset, purpose, paying.unit(unit))
    output = QueryOutput(
        source, target, budget, paying, threads, force, as_json, preview, about, str(layout)
    )
    return Asked(source, relation, layout, output, scheduler)


def asked_of_numbers(
    source: Source,
    target: Target,
    columns: ColumnsOption,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    norm: Norm = None,
    lower: Lower = None,
    upper: Upper = None,
    delimiter: DelimiterOption = None,
    names: NamesOption = None,
    decimal: DecimalOption = None,
    thousands: ThousandsOption = None,
    missing: MissingOption = None,
    fill: FillOption = None,
    ledger: OptionalLedgerOption = None,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    request: RequestOption = None,
    unit: OptionalUnitOption = None,
    dataset: DatasetOption = None,
    purpose: PurposeOption = None,
    preview: PreviewOption = False,
    threads: ThreadsOption = None,
    scheduler: SchedulerOption = None,
    most_records: MostRecords = MOST_RECORDS,
    force: Force = False,
    as_json: AsJson = False,
) -> AskedOfNumbers:
    """Return what the options of commands on numbers say."""
    guarantee = (delta, neighbouring, epsilon, mu)
    paid_from = (ledger, account, keys, request)
    said = (unit, dataset, purpose)
    written = (delimiter, names, decimal, thousands, missing, fill)
    common = asked(
        source,
        target,
        *guarantee,
        *written,
        *paid_from,
        *said,
        preview,
        threads,
        scheduler,
        force,
        as_json,
    )
    wanted = tuple(name.strip() for name in columns.split(","))
    return AskedOfNumbers(
        **vars(common),
        columns=wanted,
        bounds=public_bounds(wanted, norm, lower, upper),
        most_records=most_records,
    )


def with_options_of(
    gather: Callable[..., Any],
) -> Callable[[Callable[Concatenate[Any, ...], None]], Callable[..., None]]:
    """Return a decorator that gives a command the options of a function, before its own.

    The command's first argument becomes what that function makes of them.
    """

    def decorated(command: Callable[Concatenate[Any, ...], None]) -> Callable[..., None]:
        shared = list(inspect.signature(gather).parameters.values())
        own = list(inspect.signature(command).parameters.values())[1:]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            gathered = gather(**{option.name: values.pop(option.name) for option in shared})
            command(gathered, **values)

        # typer reads both. Options without a default come first, as Python wants it.
        options = sorted([*shared, *own], key=lambda option: option.default is not option.empty)
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return decorated


def public_bounds(
    columns: tuple[str, ...], norm: float | None, lower: str | None, upper: str | None
) -> PublicBounds:
    """Return the bounds that options say, or raise if there are none."""
    if norm is None and lower is None and upper is None:
        raise InvalidParameterError(
            "pass --norm, or --lower and --upper, or all three: without a public bound one record "
            "could change the answer by any amount"
        )
    sides = [None if text is None else _numbers(text) for text in (lower, upper)]
    return PublicBounds(columns, norm=norm, lower=sides[0], upper=sides[1])


def _numbers(text: str) -> float | list[float]:
    try:
        numbers = [nearest_float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError(f"{text!r} is not a number, nor numbers with commas") from None
    return numbers[0] if len(numbers) == 1 else numbers


def edges(values: Sequence[str]) -> list[float]:
    """Return the edges of bins, of which the outer ones may be infinite; `Bins` checks them."""
    try:
        return [float(value) for value in values]
    except ValueError:
        raise InvalidParameterError(
            f"{','.join(values)!r} are not edges: pass increasing numbers with commas"
        ) from None


def named_list(text: str) -> tuple[str, list[str]]:
    """Return the name and the values of ``NAME=A,B,...``."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise InvalidParameterError(f"{text!r} must be NAME=VALUES, such as age=0,18,65")
    return name.strip(), [value.strip() for value in values.split(",")]
