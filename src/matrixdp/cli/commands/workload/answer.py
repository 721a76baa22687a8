"""``matrixdp workload answer``: noisy measurements that the answers follow from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from matrixdp.cli.commands.workload.measuring import (
    computed_mechanism,
    report_measurements,
    show_preview,
)
from matrixdp.cli.commands.workload.options import (
    SavedStrategyOption,
    WorkloadOption,
    check_delimiter,
    check_distinct,
    read_workload,
    workload_files,
)
from matrixdp.cli.shared.ledgers import (
    KeysOption,
    OptionalAccountOption,
    OptionalLedgerOption,
    RequestOption,
)
from matrixdp.cli.shared.options import (
    AsJson,
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
    ThreadsOption,
    about_from,
    budget_from,
)
from matrixdp.cli.shared.paying import paying_from
from matrixdp.cli.shared.streams import read_source
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import ARROW, FORMATS, TEXT, check_format, format_of
from matrixdp.files.publishing.atomic import check_target
from matrixdp.files.publishing.statement import check_archive_name, statement_path
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.parameters import LARGEST_EXACT_INTEGER, real_array
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.workloads import Workload
from matrixdp.workloads.counting import check_records, checked_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["answer"]


def answer(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help=f"Counts of records, or records: {', '.join(FORMATS)}."),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The .npz file for the noisy measurements.")
    ],
    workload: WorkloadOption,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    strategy: SavedStrategyOption = None,
    delimiter: DelimiterOption = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="IN holds a record in each row: the index of its cell along each attribute, "
            "from 0.",
        ),
    ] = False,
    ledger: OptionalLedgerOption = None,
    account: OptionalAccountOption = None,
    keys: KeysOption = None,
    request: RequestOption = None,
    unit: OptionalUnitOption = None,
    dataset: DatasetOption = None,
    purpose: PurposeOption = None,
    preview: PreviewOption = False,
    threads: ThreadsOption = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure with exact noise, and state beside it (OUT.json) what is guaranteed.

    The answers follow from OUT: see workload export.
    """
    # Everything that can be refused is refused before minutes of optimising, and that before a
    # draw.
    relation = checked_neighbouring(neighbouring)
    budget = budget_from(epsilon, delta, mu)
    check_format(source)
    check_delimiter(delimiter, [source, *workload_files(workload)])
    queries = read_workload(workload, delimiter)
    queries.check_answerable()
    if not records:
        queries.check_histogram()
    if preview:
        show_preview(computed_mechanism(queries, budget, relation, strategy), as_json=as_json)
        return
    paying = paying_from(ledger, account, keys, request, target=target)
    about = about_from(dataset, purpose, paying.unit(unit))
    check_archive_name(target)
    # An earlier attempt at what was paid may have made them.
    for path in () if paying.resumed else (target, statement_path(target)):
        check_target(path, force=force)
    saved = [] if strategy is None else [strategy]
    check_distinct(target, [source, *saved, *workload_files(workload)])
    counted = _read(source, delimiter)
    given = (
        _checked_records(counted, queries)
        if records
        else _checked_histogram(counted.array, queries)
    )
    mechanism = computed_mechanism(queries, budget, relation, strategy)
    release = mechanism.release_records_to if records else mechanism.release_to
    with paying.reporting_pending():
        release(
            *(target, given),
            privacy_filter=paying.account,
            request=paying.request,
            force=force,
            threads=threads,
            about=about,
        )
    report_measurements(mechanism, target, paying, as_json=as_json)


def _read(source: Path, delimiter: str | None) -> MatrixFile:
    # A count that float64 would round is not the count of the file: the noise covers what one
    # record changes in integers, and nothing else.
    return read_source(
        str(source),
        format_of(source),
        # Names, where the format has them; in text their row is a cell that is no number.
        header=format_of(source) in ARROW,
        decimals="exact",
        delimiter=delimiter if format_of(source) in TEXT else None,
        offered=("--delimiter",),
    )


def _checked_histogram(given: "NDArray[Any]", queries: Workload) -> "NDArray[Any]":
    counts = queries.checked_cells(given.ravel() if 1 in given.shape else given, "IN")
    wrong = (counts < 0) | (counts % 1 != 0)
    if bool(wrong.any()):
        found = _first(wrong.reshape(given.shape))
        raise InvalidParameterError(
            f"IN, {found}: the number is not a count of records, an integer of at least 0: "
            "count the records of each cell"
        )
    return checked_counts(counts, queries)


def _checked_records(given: MatrixFile, queries: Workload) -> "NDArray[Any]":
    if given.columns is not None and len(queries.dimensions) > 1:
        raise InvalidParameterError(
            "IN has names of columns, and a workload has none to match: use `query marginals`, "
            "which goes by name, or a file without names, such as .npy"
        )
    numbers = real_array(given.array, "IN", axes=2)
    # Text files hold decimals, which may be integers.
    wrong = (abs(numbers) > LARGEST_EXACT_INTEGER) | (numbers % 1 != 0)
    if bool(wrong.any()):
        raise InvalidParameterError(
            f"IN, {_first(wrong)}: the number is not an integer, the number of a cell: number "
            "the categories"
        )
    cells = numbers.astype("int64")
    check_records(cells, queries.dimensions)
    return cells


def _first(wrong: "NDArray[np.bool_]") -> str:
    """Return the index of the first entry that is true, in words, counted from 1."""
    index = [int(number) + 1 for number in np.argwhere(wrong)[0]]
    if len(index) == 2:
        return f"row {index[0]}, column {index[1]}"
    return f"entry {', '.join(map(str, index))}"
