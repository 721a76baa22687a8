"""The files of ``matrixdp release``, and its report: to people and to programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from matrixdp.cli.shared.labels import warn_of_lost_labels
from matrixdp.cli.shared.output import print_json
from matrixdp.cli.shared.paying import Paying
from matrixdp.cli.shared.streams import STREAM, check_stdout, reporting_release
from matrixdp.covariance import Covariance, SymmetricIsotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import CHUNKED, FORMATS, format_of
from matrixdp.files.publishing.atomic import check_inputs_survive, check_target
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.about import About
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_up

__all__ = ["Outcome", "Paths", "format_named", "report_release", "statement_target"]


@dataclass(frozen=True)
class Paths:
    """Where the matrix comes from, and where the release and its statement go."""

    source: str
    target: str
    suffix: str
    statement: Path
    force: bool
    paying: Paying
    about: About | None = None

    @property
    def source_name(self) -> str:
        """What to call IN in errors."""
        return "stdin" if self.source == STREAM else self.source

    def check(self, bounds: Sequence[Path | None], *, as_json: bool) -> None:
        """Refuse targets that cannot be written, or that would destroy what is read."""
        read = [path for path in bounds if path is not None]
        if self.source != STREAM:
            read.append(Path(self.source))
        written = [self.statement] if self.target == STREAM else [self.statement, Path(self.target)]
        # First, because its message is the more helpful one where both checks fail.
        check_inputs_survive(written, read)
        # An earlier attempt at what was paid may have made them.
        for path in () if self.paying.resumed else written:
            check_target(path, force=self.force)
        if self.target == STREAM:
            check_stdout()
            if as_json:
                raise InvalidParameterError("--json and the released matrix cannot share stdout")


def format_named(path: str, given: str | None, side: str) -> str:
    """Return the format of a file or a standard stream, or raise if it is not known."""
    if path == STREAM and given is None:
        raise InvalidParameterError(
            f"say --{side}-format for {side} {path!r}: "
            f"{', '.join(each.removeprefix('.') for each in FORMATS)}"
        )
    # Two formats for one file could contradict each other.
    if path != STREAM and given is not None:
        raise InvalidParameterError(
            f"--{side}-format is for standard streams: the name of {path!r} says its format"
        )
    suffix = format_of(path) if given is None else f".{given.lower().removeprefix('.')}"
    if not suffix:
        raise InvalidParameterError(
            f"{side} {path!r} does not end like a file of a known format: use one of "
            f"{', '.join(FORMATS)}"
        )
    if suffix not in {*FORMATS, *CHUNKED} or (suffix == ".zarr" and path == STREAM):
        raise InvalidParameterError(
            f"{side} {path!r} is of format {suffix!r}: use one of {', '.join(FORMATS)}"
        )
    return suffix


def statement_target(target: str, statement: Path | None) -> Path:
    """Return where the statement goes: beside the file, or where ``--statement`` says."""
    if target != STREAM:
        if statement is not None:
            raise InvalidParameterError(
                "--statement is for stdout: the statement of a file is OUT.json, beside it"
            )
        return statement_path(Path(target))
    if statement is None or str(statement) == STREAM:
        raise InvalidParameterError("with stdout, name a file for the statement with --statement")
    return statement


@dataclass(frozen=True)
class Outcome:
    """What a release promises, and what of it is public."""

    guarantee: Guarantee
    covariance: Covariance
    shape: tuple[int, int]
    column_labels: int = 0
    row_labels: int = 0
    labelled: bool = False


def report_release(done: Outcome, paths: Paths, *, as_json: bool) -> None:
    """Say what was released."""
    with reporting_release(paths.statement, paths.paying.again):
        if done.labelled:
            warn_of_lost_labels(paths.suffix)
        if as_json:
            print_json(_fields(done, paths))
            return
        for line in _lines(done, paths):
            typer.echo(line, err=True)


def _fields(done: Outcome, paths: Paths) -> dict[str, object]:
    smallest, largest = _extreme_scales(done.covariance)
    return {
        "output": paths.target,
        "statement": str(paths.statement),
        "epsilon": done.guarantee.epsilon,
        "delta": done.guarantee.delta,
        "mu": done.guarantee.mu,
        "neighbouring": done.guarantee.neighbouring,
        "smallest_noise_scale": smallest,
        "largest_noise_scale": largest,
        "shape": list(done.shape),
        "column_labels": done.column_labels,
        "row_labels": done.row_labels,
        **paths.paying.fields(),
    }


def _lines(done: Outcome, paths: Paths) -> list[str]:
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
        f"noise scale {scales}; wrote {paths.target} and {paths.statement}",
        *paths.paying.lines(),
    ]


def _extreme_scales(covariance: Covariance) -> tuple[float, float]:
    """Return the smallest and the largest standard deviation of an entry."""
    if isinstance(covariance, SymmetricIsotropic):
        # A pair of mirrored entries counts as one there, so singular values are not entry scales.
        scales = covariance.entry_scales((2, 2))
        return float(scales.min()), float(scales.max())
    return covariance.smallest_singular_value, covariance.largest_singular_value
