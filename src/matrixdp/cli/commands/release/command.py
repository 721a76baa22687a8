"""The command ``matrixdp release``: its options, and the way of a matrix through it."""

import signal
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from matrixdp.cli.commands.release.chunked import Cluster, released_in_chunks
from matrixdp.cli.commands.release.output import (
    Outcome,
    Paths,
    format_named,
    report_release,
    statement_target,
)
from matrixdp.cli.commands.release.preview import show_preview
from matrixdp.cli.commands.release.reading import Reading
from matrixdp.cli.shared.labels import CommandWithLabels, Labels
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
    OptionalColumnsOption,
    OptionalEpsilonOption,
    OptionalSensitivityOption,
    OptionalUnitOption,
    PreviewOption,
    PurposeOption,
    SchedulerOption,
    ThreadsOption,
    WorkerKeysOption,
    about_from,
    bound_option,
    budget_from,
    names_of,
)
from matrixdp.cli.shared.paying import paying_from
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.cli.shared.streams import STREAM, read_source, write_stdout
from matrixdp.covariance import Diagonal, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.arrow_format import check_names
from matrixdp.files.formats.decimal_range import cover_decimals
from matrixdp.files.formats.decimals import upper_float
from matrixdp.files.formats.numpy_format import NpyLayout, read_layout
from matrixdp.files.formats.progress import Share
from matrixdp.files.formats.suffixes import FORMATS, LABELLED, TEXT, format_of
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.paid_release import release_to
from matrixdp.files.publishing.releases import encode_release
from matrixdp.files.publishing.streamed_release import release_npy
from matrixdp.interrupts import ProgramInterrupts
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.sensitivity.sets import (
    FrobeniusBall,
    RowBounds,
    RowBox,
    SensitivitySet,
    SymmetricBall,
)

__all__ = ["COMMAND_CLASS", "release"]

COMMAND_CLASS = CommandWithLabels
"""The class of the command, whose options for labels may go without a value."""


def release(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help=f"A file ({', '.join(FORMATS)}), a folder of chunks (.zarr, .npy, .parquet), "
            "a pattern of .npy or .parquet files in quotes, or - for stdin.",
        ),
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file or folder to make, or - for stdout.")
    ],
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    sensitivity: OptionalSensitivityOption = None,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="With --sensitivity: the matrix stays symmetric.")
    ] = False,
    row_bounds: Annotated[
        str | None,
        typer.Option(
            "--row-bounds",
            help="Instead of --sensitivity: one row changes, row i by a norm of at most the i-th "
            "of these (1,2,3 or a file).",
        ),
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(
            "--box",
            help="Instead of --sensitivity: one row changes, its entry j by at most the j-th of "
            "these (1,2,3 or a file).",
        ),
    ] = None,
    largest: Annotated[
        float | None,
        bound_option(
            "--range",
            "Text: no cell is larger than this, and the noise covers the rounding of decimals up "
            "to it; larger cells are refused. Choose it without looking at the data. Default: "
            "2^32 bound / sqrt(k) for each bound, where k cells share the bound (1 with --box, a "
            "row with --row-bounds, all with --sensitivity).",
        ),
    ] = None,
    header: Annotated[
        Labels | None,
        typer.Option(
            "--header",
            metavar="[=public]",
            help="Text: the first row is labels, published as they are. Labels that could be data "
            "(numbers, missing values) need --header=public.",
        ),
    ] = None,
    index: Annotated[
        Labels | None,
        typer.Option(
            "--index",
            metavar="[=public]",
            help="The first column is labels, in the same way; or --index=public.",
        ),
    ] = None,
    delimiter: DelimiterOption = None,
    columns: OptionalColumnsOption = None,
    input_format: Annotated[
        str | None, typer.Option("--input-format", help="Of stdin: npy, csv, parquet and so on.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", help="Of stdout: npy, csv, parquet and so on.")
    ] = None,
    statement: Annotated[
        Path | None, typer.Option("--statement", help="With stdout: where the statement goes.")
    ] = None,
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
    worker_keys: WorkerKeysOption = None,
    no_check: Annotated[
        bool,
        typer.Option(
            "--no-check",
            help="For folders of chunks: compute IN once instead of twice. A number that may not "
            "be released is noticed after paying then.",
        ),
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release a matrix with exact noise, and state beside it (OUT.json) what that guarantees."""
    # Everything that can be refused without reading the matrix is refused here.
    bounds = _sensitivity_set(
        checked_neighbouring(neighbouring), sensitivity, row_bounds, box, symmetric=symmetric
    )
    mechanism = IMGM(bounds, budget_from(epsilon, delta, mu))
    suffixes = (
        format_named(source, input_format, "input"),
        format_named(target, output_format, "output"),
    )
    reading = Reading(suffixes[0], header, index, delimiter, names_of(columns))
    reading.check(largest)
    cluster = Cluster(scheduler, worker_keys, check=not no_check)
    in_chunks = cluster.is_used(source, suffixes, threads)
    if in_chunks:
        reading.check_of_folder()
    if preview:
        show_preview(mechanism, suffixes[0], largest, as_json=as_json)
        return
    paying = paying_from(ledger, account, keys, request, target=target)
    beside = statement_target(target, statement)
    about = about_from(dataset, purpose, paying.unit(unit))
    paths = Paths(source, target, suffixes[1], beside, force, paying, about)
    paths.check([_bounds_file(row_bounds), _bounds_file(box)], as_json=as_json)
    layout = _streamable_layout(source, suffixes, target, mechanism)
    with paying.reporting_pending():
        if in_chunks:
            done = released_in_chunks(mechanism, paths, cluster)
        elif layout is not None:
            done = _released_in_parts(mechanism, layout, paths, threads)
        else:
            matrix = reading.read(source)
            if suffixes[0] in TEXT:
                # The other formats hold floats, which nobody rounds.
                mechanism = _covering_decimals(mechanism, matrix, largest, paths.source_name)
            done = _released_in_memory(mechanism, matrix, paths, threads)
    report_release(done, paths, as_json=as_json)


def _streamable_layout(
    source: str, suffixes: tuple[str, str], target: str, mechanism: IMGM
) -> NpyLayout | None:
    """Return the layout of a file that can be released in parts, or None if it is read whole."""
    if suffixes != (".npy", ".npy") or STREAM in (source, target):
        return None
    # Symmetric noise needs both triangles at once.
    if not isinstance(mechanism.covariance, Isotropic | Diagonal):
        return None
    try:
        return read_layout(Path(source))
    except (FileFormatError, OSError):
        return None  # it holds integers; if it is damaged, reading it whole says how


def _covering_decimals(
    mechanism: IMGM, matrix: MatrixFile, largest: float | None, name: str
) -> IMGM:
    """Return a mechanism whose noise also covers the rounding of the file's decimals."""
    rows, columns = matrix.array.shape
    cover = cover_decimals(mechanism.sensitivity, (rows, columns), largest)
    cover.check(matrix, name)
    return IMGM(cover.sensitivity, mechanism.budget)


def _released_in_parts(
    mechanism: IMGM, layout: NpyLayout, paths: Paths, threads: int | None
) -> Outcome:
    # Every element is counted twice: when it is checked and when it is written.
    with progress_bar(2 * layout.size, "Adding noise") as advance:
        guarantee = release_npy(
            mechanism,
            paths.source,
            paths.target,
            privacy_filter=paths.paying.account,
            request=paths.paying.request,
            force=paths.force,
            threads=threads,
            about=paths.about,
            advance=advance,
        )
    # Anything but two axes was refused just now.
    shape = cast("tuple[int, int]", layout.shape)
    return Outcome(guarantee, mechanism.covariance, shape)


def _released_in_memory(
    mechanism: IMGM, matrix: MatrixFile, paths: Paths, threads: int | None
) -> Outcome:
    # Before anything is drawn: what cannot be written would be lost.
    check_names(matrix, paths.suffix)
    with progress_bar(1.0, f"Writing {paths.target}", after=1.0) as advance:
        if paths.target == STREAM:
            released = mechanism.release(matrix, threads=threads)
            _release_to_stdout(released, paths, advance)
        else:
            released = release_to(
                mechanism,
                paths.target,
                matrix,
                privacy_filter=paths.paying.account,
                request=paths.paying.request,
                force=paths.force,
                threads=threads,
                about=paths.about,
                advance=advance,
            )
    kept = matrix if paths.suffix in LABELLED else MatrixFile(matrix.array)
    return Outcome(
        released.guarantee,
        released.covariance,
        released.shape,
        column_labels=len(kept.columns or ()),
        row_labels=len(kept.index or ()),
        labelled=matrix.columns is not None or matrix.index is not None,
    )


def _release_to_stdout(released: Release, paths: Paths, advance: Share) -> None:
    # A statement names its file, and a stream has no name; readers do not compare it.
    data, statement = encode_release(
        released, f"stdout{paths.suffix}", about=paths.about, advance=advance
    )
    former = paths.statement.read_bytes() if paths.statement.is_file() else None
    interruptible = isinstance(signal.getsignal(signal.SIGINT), ProgramInterrupts)
    # The statement first: if it cannot be written, nothing is released.
    write_all([(paths.statement, statement)], force=paths.force, release=True)
    try:
        write_stdout(data, interruptible=interruptible)
    except OSError:
        # Not a single byte was written. In all other cases the statement stays, to be safe.
        if former is None:
            paths.statement.unlink(missing_ok=True)
        else:  # of an earlier release, which is out and keeps its statement
            write_all([(paths.statement, former)], force=True)
        raise


def _sensitivity_set(
    neighbouring: Neighbouring,
    sensitivity: float | None,
    row_bounds: str | None,
    box: str | None,
    *,
    symmetric: bool,
) -> SensitivitySet:
    """Return the set that the options describe.

    Raises
    ------
    InvalidParameterError
        If not exactly one of the three kinds of bounds is given, or one is not positive.
    """
    # Two sets at once could mean their union or their intersection: the user has to choose.
    if [sensitivity, row_bounds, box].count(None) != 2 or (symmetric and sensitivity is None):
        raise InvalidParameterError(
            "pass one of --sensitivity (with or without --symmetric), --row-bounds and --box"
        )
    if sensitivity is not None:
        ball = SymmetricBall if symmetric else FrobeniusBall
        return ball(sensitivity, neighbouring=neighbouring)
    if row_bounds is not None:
        return RowBounds(_vector(row_bounds), neighbouring=neighbouring)
    return RowBox(_vector(box or ""), neighbouring=neighbouring)


def _bounds_file(text: str | None) -> Path | None:
    """Return the file that bounds are read from, or None if they are numbers themselves."""
    return Path(text) if text is not None and format_of(text) in FORMATS else None


def _vector(text: str) -> Any:
    """Return the bounds of a list with commas, or of a file."""
    path = _bounds_file(text)
    if path is not None:
        array = read_source(str(path), format_of(path), decimals="up").array
        # One row or one column is a vector; the set refuses any other shape and names it.
        return array.ravel() if array.ndim == 2 and 1 in array.shape else array
    try:
        return [upper_float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError(
            f"{text!r} is neither numbers with commas between them nor a file"
        ) from None
