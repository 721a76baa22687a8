"""Where ``matrixdp release`` reads a matrix, and where the release and its statement go."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matrixdp.cli.streams import STREAM, check_stdout
from matrixdp.errors import InvalidParameterError
from matrixdp.files.atomic import check_target
from matrixdp.files.formats import FORMATS, format_of
from matrixdp.files.overwriting import check_inputs_survive
from matrixdp.files.statement import statement_path

__all__ = ["Places", "format_named", "statement_target"]


@dataclass(frozen=True)
class Places:
    """Where the matrix comes from, and where the release and its statement go."""

    source: str
    target: str
    suffix: str
    statement: Path
    force: bool

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
        for path in written:
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
    if suffix not in FORMATS:
        raise InvalidParameterError(
            f"{side} {path!r} is of format {suffix!r}: use one of {', '.join(FORMATS)}"
        )
    return suffix


def statement_target(target: str, sidecar: Path | None) -> Path:
    """Return where the statement goes: beside the file, or where ``--sidecar`` says."""
    if target != STREAM:
        if sidecar is not None:
            raise InvalidParameterError(
                "--sidecar is for stdout: the statement of a file is OUT.json, beside it"
            )
        return statement_path(Path(target))
    if sidecar is None or str(sidecar) == STREAM:
        raise InvalidParameterError("with stdout, name a file for the statement with --sidecar")
    return sidecar
