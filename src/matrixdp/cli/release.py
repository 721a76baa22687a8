"""``matrixdp release``: from a file with a matrix to a file that may be shown."""

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixdp.cli.options import AsJson, DeltaOption, EpsilonOption, Force, number_option
from matrixdp.cli.output import print_json
from matrixdp.cli.progress import progress_bar
from matrixdp.covariance import Covariance, Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.matrices import FORMATS, read_matrix
from matrixdp.files.npy_layout import read_layout
from matrixdp.files.releases import encode_release
from matrixdp.files.statement import statement_path
from matrixdp.files.streamed_release import release_npy
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee, checked_neighbouring
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import (
    Box,
    FrobeniusBall,
    RowBounds,
    SensitivitySet,
    SymmetricBall,
)

__all__ = ["release"]

_STREAM = "-"


def release(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A .npy, .npz or .csv file, or - for stdin.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="The file to make, or - for stdout.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    neighbouring: Annotated[
        str,
        typer.Option("--neighbouring", help="What a record's change is: add-remove, replace."),
    ],
    sensitivity: Annotated[
        float | None,
        number_option("--sensitivity", "Largest Frobenius norm of the change by one record."),
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
    header: Annotated[bool, typer.Option("--header", help="CSV: the first row is labels.")] = False,
    index: Annotated[
        bool, typer.Option("--index", help="CSV: the first column is labels.")
    ] = False,
    input_format: Annotated[
        str | None, typer.Option("--input-format", help="Of stdin: npy, npz or csv.")
    ] = None,
    output_format: Annotated[
        str | None, typer.Option("--output-format", help="Of stdout: npy, npz or csv.")
    ] = None,
    sidecar: Annotated[
        Path | None, typer.Option("--sidecar", help="With stdout: where the statement goes.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Release a matrix with exact noise, and state beside it (OUT.json) what that guarantees."""
    mechanism = IMGM(
        _sensitivity_set(
            checked_neighbouring(neighbouring), sensitivity, row_bounds, box, symmetric=symmetric
        ),
        Budget(epsilon, delta),
    )
    suffixes = (_suffix(source, input_format, "input"), _suffix(target, output_format, "output"))
    if (header or index) and suffixes[0] != ".csv":
        raise InvalidParameterError(f"--header and --index are for CSV, and IN is {suffixes[0]}")
    beside = _statement_target(target, sidecar)
    check_target(beside, force=force)
    if target == _STREAM and sys.stdout is None:
        raise InvalidParameterError("stdout is closed: name a file as OUT")
    if target == _STREAM and as_json:
        raise InvalidParameterError("--json and the released matrix cannot share stdout")
    if target != _STREAM:
        check_target(Path(target), force=force)
    if suffixes == (".npy", ".npy") and target != _STREAM and _streamable(source, mechanism):
        with progress_bar(2 * read_layout(Path(source)).size, "Adding noise") as advance:
            guarantee = release_npy(mechanism, source, target, force=force, advance=advance)
    else:
        matrix = _read(source, suffixes[0], header=header, index=index)
        _check_labels(matrix)
        guarantee = _release_in_memory(mechanism, matrix, target, suffixes[1], beside, force=force)
    _report(guarantee, mechanism.covariance, target, beside, as_json=as_json)


def _sensitivity_set(
    neighbouring: Any,
    sensitivity: float | None,
    row_bounds: str | None,
    box: str | None,
    *,
    symmetric: bool,
) -> SensitivitySet:
    if [sensitivity, row_bounds, box].count(None) != 2 or (symmetric and sensitivity is None):
        raise InvalidParameterError(
            "pass one of --sensitivity (with or without --symmetric), --row-bounds and --box"
        )
    if sensitivity is not None:
        ball = SymmetricBall if symmetric else FrobeniusBall
        return ball(sensitivity, neighbouring=neighbouring)
    if row_bounds is not None:
        return RowBounds(_vector(row_bounds), neighbouring=neighbouring)
    return Box(_vector(box or ""), neighbouring=neighbouring)


def _vector(text: str) -> Any:
    """Return the numbers of a list with commas, or of a file."""
    if Path(text).suffix in FORMATS:
        array = _read(text, Path(text).suffix, header=False, index=False).array
        return array.ravel() if array.ndim == 2 and 1 in array.shape else array
    try:
        return [float(part.replace("_", "?")) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError(
            f"{text!r} is neither numbers with commas between them nor a file"
        ) from None


def _suffix(path: str, given: str | None, side: str) -> str:
    if path == _STREAM and given is None:
        raise InvalidParameterError(f"say --{side}-format npy, npz or csv for {side} {path!r}")
    if path != _STREAM and given is not None:
        raise InvalidParameterError(
            f"--{side}-format is for standard streams: the name of {path!r} says its format"
        )
    suffix = Path(path).suffix if given is None else f".{given}"
    if suffix not in FORMATS:
        raise InvalidParameterError(
            f"{side} {path!r} is of format {suffix!r}: use one of {', '.join(FORMATS)}"
        )
    return suffix


def _statement_target(target: str, sidecar: Path | None) -> Path:
    if target != _STREAM:
        if sidecar is not None:
            raise InvalidParameterError("--sidecar is for stdout: beside a file it is OUT.json")
        return statement_path(Path(target))
    if sidecar is None or str(sidecar) == _STREAM:
        raise InvalidParameterError(
            "with stdout, say with --sidecar in which file the statement goes"
        )
    return sidecar


def _streamable(source: str, mechanism: IMGM) -> bool:
    """Return whether a file can be read in parts: floats, with independent noise."""
    if source == _STREAM or not isinstance(mechanism.covariance, Isotropic | Diagonal):
        return False
    try:
        read_layout(Path(source))
    except (FileFormatError, OSError):
        return False  # integers; or reading it as a whole says what is wrong
    return True


def _read(source: str, suffix: str, *, header: bool, index: bool) -> MatrixFile:
    if source == _STREAM:
        if sys.stdin is None:
            raise InvalidParameterError("stdin is closed: pass a file, or pipe a matrix in")
        content = io.BytesIO(sys.stdin.buffer.read())
        return read_matrix(content, suffix, "stdin", header=header, index=index)
    try:
        with Path(source).open("rb") as file:
            return read_matrix(file, suffix, source, header=header, index=index)
    except FileNotFoundError:
        raise FileFormatError(f"{source} does not exist: name a file to release") from None
    except IsADirectoryError:
        raise FileFormatError(f"{source} is a folder: name a file in it") from None


def _check_labels(matrix: MatrixFile) -> None:
    """Refuse labels that look like data: they are published as they are."""
    if matrix.columns is not None and all(map(_is_number, matrix.columns)):
        raise InvalidParameterError(
            "--header would publish the first row of IN as labels, but all of it is numbers: leave "
            "the option out, or give the columns names"
        )
    if matrix.index is not None and any(
        _is_number(label) and not label.strip().lstrip("+-").isdigit() for label in matrix.index
    ):
        raise InvalidParameterError(
            "--index would publish the first column of IN as labels, but it holds numbers that are "
            "not whole: leave the option out, or give the rows names"
        )


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def _release_in_memory(
    mechanism: IMGM, matrix: MatrixFile, target: str, suffix: str, beside: Path, *, force: bool
) -> Guarantee:
    released = mechanism.release(matrix)
    if target != _STREAM:
        released.save(target, force=force)
        return released.guarantee
    data, statement = encode_release(released, f"stdout{suffix}")
    write_all([(beside, statement.encode())], force=force)
    try:
        _write_out(data)
    except BaseException:
        beside.unlink(missing_ok=True)  # it speaks of a matrix that never came out
        raise
    return released.guarantee


def _write_out(data: bytes) -> None:
    """Write everything to stdout, which may be unbuffered and take only a part at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def _extreme_scales(covariance: Covariance) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of an entry."""
    if isinstance(covariance, SymmetricIsotropic):
        scales = covariance.entry_scales((2, 2))
        return float(scales.min()), float(scales.max())
    return covariance.smallest_singular_value, covariance.largest_singular_value


def _report(
    guarantee: Guarantee, covariance: Covariance, target: str, beside: Path, *, as_json: bool
) -> None:
    smallest, largest = _extreme_scales(covariance)
    if as_json:
        print_json(
            {
                "output": target,
                "statement": str(beside),
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
                "mu": guarantee.mu,
                "neighbouring": guarantee.neighbouring,
                "smallest_noise_scale": smallest,
                "largest_noise_scale": largest,
            }
        )
        return
    scales = shown_up(smallest)
    if largest > smallest:
        scales += f" to {shown_up(largest)}"
    typer.echo(f"{guarantee}", err=True)
    typer.echo(f"noise scale {scales}; wrote {target} and {beside}", err=True)
