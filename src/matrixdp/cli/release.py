"""``matrixdp release``: from a file with a matrix to a file that may be shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer

from matrixdp.cli.bounds import bound_option, bounds_file, sensitivity_set
from matrixdp.cli.labels import CommandWithLabels, Labels, check_labels, warn_of_lost_labels
from matrixdp.cli.options import (
    AsJson,
    DelimiterOption,
    DeltaOption,
    Force,
    MuOption,
    OptionalEpsilonOption,
    budget_from,
    names_of,
)
from matrixdp.cli.output import print_json
from matrixdp.cli.progress import progress_bar
from matrixdp.cli.streams import (
    SPENDS_AGAIN,
    STREAM,
    check_stdout,
    read_source,
    reporting_release,
    write_stdout,
)
from matrixdp.covariance import Covariance, Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.arrow_format import check_names
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.decimal_range import cover_decimals
from matrixdp.files.formats import ARROW, FORMATS, LABELLED, TEXT, format_of
from matrixdp.files.npy_layout import NpyLayout, read_layout
from matrixdp.files.overwriting import check_inputs_survive
from matrixdp.files.releases import encode_release, save_release
from matrixdp.files.statement import statement_path
from matrixdp.files.streamed_release import release_npy
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.guarantee import Guarantee, checked_neighbouring
from matrixdp.rounding import shown_up

__all__ = ["COMMAND_CLASS", "release"]

COMMAND_CLASS = CommandWithLabels
"""The class of the command, whose options for labels may go without a value."""


def release(
    source: Annotated[
        str, typer.Argument(metavar="IN", help=f"A file ({', '.join(FORMATS)}), or - for stdin.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to make, or - for stdout.")
    ],
    delta: DeltaOption,
    neighbouring: Annotated[
        str,
        typer.Option("--neighbouring", help="What a record's change is: add-remove, replace."),
    ],
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    sensitivity: Annotated[
        float | None,
        bound_option("--sensitivity", "Largest Frobenius norm of the change by one record."),
    ] = None,
    symmetric: Annotated[
        bool, typer.Option("--symmetric", help="With --sensitivity: the matrix stays symmetric.")
    ] = False,
    row_bounds: Annotated[
        str | None,
        typer.Option(
            "--row-bounds",
            help="Instead: one row changes, by at most these norms (1,2,3 or a file).",
        ),
    ] = None,
    box: Annotated[
        str | None,
        typer.Option(
            "--box",
            help="Instead: one row changes, its entries by at most these (1,2,3 or a file).",
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
            help="The first column is labels; likewise --index=public.",
        ),
    ] = None,
    delimiter: DelimiterOption = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="Release these columns alone: names with commas, of text with --header, Parquet "
            "or Arrow.",
        ),
    ] = None,
    input_format: Annotated[
        str | None, typer.Option("--input-format", help="Of stdin: npy, csv, parquet and so on.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", help="Of stdout: npy, csv, parquet and so on.")
    ] = None,
    sidecar: Annotated[
        Path | None, typer.Option("--sidecar", help="With stdout: where the statement goes.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release a matrix with exact noise, and state beside it (OUT.json) what that guarantees."""
    # Everything that can be refused without reading the matrix is refused here.
    bounds = sensitivity_set(
        checked_neighbouring(neighbouring), sensitivity, row_bounds, box, symmetric=symmetric
    )
    mechanism = IMGM(bounds, budget_from(epsilon, delta, mu))
    suffixes = (_suffix(source, input_format, "input"), _suffix(target, output_format, "output"))
    reading = _Reading(suffixes[0], header, index, delimiter, names_of(columns))
    reading.check(largest)
    places = _Places(source, target, suffixes[1], _statement_target(target, sidecar), force)
    places.check([bounds_file(row_bounds), bounds_file(box)], as_json=as_json)
    layout = _streamable_layout(source, suffixes, target, mechanism)
    if layout is not None:
        # Every element is counted twice: when it is checked and when it is written.
        with progress_bar(2 * layout.size, "Adding noise") as advance:
            guarantee = release_npy(mechanism, source, target, force=force, advance=advance)
        # Anything but two axes was refused just now.
        shape = cast("tuple[int, int]", layout.shape)
        done = _Outcome(guarantee, mechanism.covariance, shape)
    else:
        matrix = reading.read(source)
        if suffixes[0] in TEXT:
            # The other formats hold floats, which nobody rounds.
            mechanism = _covering_decimals(mechanism, matrix, largest, places.source_name)
        done = _released_in_memory(mechanism, matrix, places)
    _report(done, places, as_json=as_json)


@dataclass(frozen=True)
class _Reading:
    """How IN is to be read."""

    suffix: str
    header: Labels | None
    index: Labels | None
    delimiter: str | None
    columns: Sequence[str] | None

    def check(self, largest: float | None) -> None:
        """Refuse options that the format has no use for."""
        for given, options, formats in (
            (largest is not None or self.delimiter is not None, "--range, --delimiter", TEXT),
            (self.header is not None or self.index is not None, "--header, --index", LABELLED),
            (self.columns is not None, "--columns", LABELLED),
        ):
            if given and self.suffix not in formats:
                raise InvalidParameterError(
                    f"{options} are for {', '.join(formats)}, but IN is {self.suffix}"
                )
        if self.columns is not None and self.suffix in TEXT and self.header is None:
            raise InvalidParameterError("--columns names columns of the first row: add --header")

    def read(self, source: str) -> MatrixFile:
        """Return the matrix, with labels that may be published."""
        # Columns of Parquet and Arrow files always have names.
        header = Labels.NAMES if self.suffix in ARROW and self.header is None else self.header
        matrix = read_source(
            source,
            self.suffix,
            header=header is not None,
            index=self.index is not None,
            delimiter=self.delimiter,
            columns=self.columns,
        )
        check_labels(matrix, header, self.index)
        return matrix


@dataclass(frozen=True)
class _Places:
    """Where the matrix comes from, and where the release and its statement go."""

    source: str
    target: str
    suffix: str
    statement: Path
    force: bool

    @property
    def source_name(self) -> str:
        return "stdin" if self.source == STREAM else self.source

    def check(self, bounds: Sequence[Path | None], *, as_json: bool) -> None:
        """Refuse targets that cannot be written, or that would destroy what is read."""
        read = [path for path in bounds if path is not None]
        if self.source != STREAM:
            read.append(Path(self.source))
        written = [self.statement] if self.target == STREAM else [self.statement, Path(self.target)]
        # First, because its message is the more helpful one where both checks fail.
        check_inputs_survive(written, read)
        for path in written:
            check_target(path, force=self.force)
        if self.target == STREAM:
            check_stdout()
            if as_json:
                raise InvalidParameterError("--json and the released matrix cannot share stdout")


@dataclass(frozen=True)
class _Outcome:
    """What a release promises, and what of it is public."""

    guarantee: Guarantee
    covariance: Covariance
    shape: tuple[int, int]
    column_labels: int = 0
    row_labels: int = 0
    labelled: bool = False


def _suffix(path: str, given: str | None, side: str) -> str:
    if path == STREAM and given is None:
        raise InvalidParameterError(
            f"say --{side}-format for {side} {path!r}: npy, npz, csv, tsv, parquet or arrow"
        )
    # Two formats for one file could contradict each other.
    if path != STREAM and given is not None:
        raise InvalidParameterError(
            f"--{side}-format is for standard streams: the name of {path!r} says its format"
        )
    suffix = format_of(path) if given is None else f".{given.lower()}"
    if suffix not in FORMATS:
        raise InvalidParameterError(
            f"{side} {path!r} is of format {suffix!r}: use one of {', '.join(FORMATS)}"
        )
    return suffix


def _statement_target(target: str, sidecar: Path | None) -> Path:
    if target != STREAM:
        if sidecar is not None:
            raise InvalidParameterError(
                "--sidecar is for stdout: the statement of a file is OUT.json, beside it"
            )
        return statement_path(Path(target))
    if sidecar is None or str(sidecar) == STREAM:
        raise InvalidParameterError("with stdout, name a file for the statement with --sidecar")
    return sidecar


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


def _released_in_memory(mechanism: IMGM, matrix: MatrixFile, places: _Places) -> _Outcome:
    # Before anything is drawn: what cannot be written would be lost.
    check_names(matrix, places.suffix)
    released = mechanism.release(matrix)
    if places.target == STREAM:
        _release_to_stdout(released, places)
    else:
        save_release(released, places.target, force=places.force)
    kept = matrix if places.suffix in LABELLED else MatrixFile(matrix.array)
    return _Outcome(
        released.guarantee,
        released.covariance,
        released.shape,
        column_labels=len(kept.columns or ()),
        row_labels=len(kept.index or ()),
        labelled=matrix.columns is not None or matrix.index is not None,
    )


def _release_to_stdout(released: Release, places: _Places) -> None:
    # A statement names its file, and a stream has no name; readers do not compare it.
    data, statement = encode_release(released, f"stdout{places.suffix}")
    former = places.statement.read_bytes() if places.statement.is_file() else None
    # The statement first: if it cannot be written, nothing is released.
    write_all([(places.statement, statement.encode())], force=places.force)
    try:
        write_stdout(data)
    except OSError:
        # Not a single byte was written. In all other cases the statement stays, to be safe.
        if former is None:
            places.statement.unlink(missing_ok=True)
        else:  # of an earlier release, which is out and keeps its statement
            write_all([(places.statement, former)], force=True)
        raise


def _report(done: _Outcome, places: _Places, *, as_json: bool) -> None:
    """Say what was released."""
    with reporting_release(places.statement):
        if done.labelled:
            warn_of_lost_labels(places.suffix)
        if as_json:
            print_json(_record(done, places))
            return
        for line in _lines(done, places):
            typer.echo(line, err=True)


def _record(done: _Outcome, places: _Places) -> dict[str, object]:
    smallest, largest = _extreme_scales(done.covariance)
    return {
        "output": places.target,
        "statement": str(places.statement),
        "epsilon": done.guarantee.epsilon,
        "delta": done.guarantee.delta,
        "mu": done.guarantee.mu,
        "neighbouring": done.guarantee.neighbouring,
        "smallest_noise_scale": smallest,
        "largest_noise_scale": largest,
        "shape": list(done.shape),
        "column_labels": done.column_labels,
        "row_labels": done.row_labels,
    }


def _lines(done: _Outcome, places: _Places) -> list[str]:
    smallest, largest = _extreme_scales(done.covariance)
    scales = shown_up(smallest)
    if largest > smallest:
        scales += f" to {shown_up(largest)}"
    labels = "no labels"
    if done.column_labels or done.row_labels:
        labels = (
            f"labels published as they are: {done.column_labels} of columns, {done.row_labels} of "
            "rows"
        )
    return [
        str(done.guarantee),
        f"a {done.shape[0]} by {done.shape[1]} matrix with noise; {labels}",
        f"noise scale {scales}; wrote {places.target} and {places.statement}",
        SPENDS_AGAIN,
    ]


def _extreme_scales(covariance: Covariance) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of an entry."""
    if isinstance(covariance, SymmetricIsotropic):
        # A pair of mirrored entries counts as one there, so singular values are not entry scales.
        scales = covariance.entry_scales((2, 2))
        return float(scales.min()), float(scales.max())
    return covariance.smallest_singular_value, covariance.largest_singular_value
