"""Options of the ``matrixdp workload`` commands, checks of their files, the status of a search.

Workloads are text: ``prefix:128``, ``ranges:64:8 * total:5``, ``identity:9 + total:9``. ``*`` joins
attributes and binds more tightly than ``+``, which joins parts, as in arithmetic.
``marginals:10x10x5:2`` is a part by itself: all tables of two of these attributes.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.streams import read_source
from matrixdp.errors import FileFormatError, InvalidParameterError, ShapeError
from matrixdp.files.formats.suffixes import FORMATS, TEXT, format_of
from matrixdp.files.publishing.atomic import check_inputs_survive
from matrixdp.files.publishing.statement import statement_path
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
)

__all__ = [
    "SavedStrategyOption",
    "WorkloadOption",
    "check_delimiter",
    "check_distinct",
    "read_workload",
    "search_status",
    "status_line",
    "workload_files",
]

_WORKLOAD_HELP = (
    "prefix:N, ranges:N, ranges:N:LONGEST, identity:N, total:N or a matrix file "
    f"({', '.join(FORMATS)}; one query in a row), in double quotes if its name holds * or +; * "
    "between attributes, + between parts. marginals:AxBxC:K is a part by itself: the tables of "
    "every K of the attributes of A, B and C cells."
)
_TABLES = "marginals:"
# Those that a size alone describes.
_KINDS: dict[str, type[Identity | Total | Prefix]] = {
    "identity": Identity,
    "total": Total,
    "prefix": Prefix,
}
WorkloadOption: TypeAlias = Annotated[str, typer.Option("--workload", help=_WORKLOAD_HELP)]
SavedStrategyOption: TypeAlias = Annotated[
    Path | None, typer.Option("--strategy", help="A strategy saved by workload optimise.")
]


def read_workload(text: str, delimiter: str | None = None) -> Workload:
    """Return the workload that a text names; the delimiter is that of its text files.

    Examples
    --------
    >>> read_workload("prefix:10*total:3 + identity:10*identity:3")
    Prefix(10) x Total(3) + Identity(10) x Identity(3)
    >>> read_workload("marginals:4x5:1")
    Identity(4) x Total(5) + Total(4) x Identity(5)
    """
    parts = [_product(part, delimiter) for part in _names(text)]
    return parts[0] if len(parts) == 1 else Union(parts)


def workload_files(text: str) -> list[Path]:
    """Return the files that a text names.

    Examples
    --------
    >>> [path.name for path in workload_files('prefix:10*a.npy + "b+c.CSV.gz"*total:3')]
    ['a.npy', 'b+c.CSV.gz']
    """
    files = [_file(name) for part in _names(text) for name in part]
    return [path for path in files if path is not None]


def _names(text: str) -> list[list[str]]:
    """Return the names of the factors, part by part; double quotes hide operators."""
    if text.count('"') % 2:
        raise InvalidParameterError(
            f"workload {text!r} has a double quote that is not closed: put one on either side of a "
            "file's name"
        )
    return [[factor.strip() for factor in _divided(part, "*")] for part in _divided(text, "+")]


def _divided(text: str, operator: str) -> list[str]:
    pieces = [""]
    # A quoted name is one token, so that operators within it are never compared.
    for token in re.findall(r'"[^"]*"|[^"]', text):
        if token == operator:
            pieces.append("")
        else:
            pieces[-1] += token
    return pieces


def _file(name: str) -> Path | None:
    """Return the file that a factor names, or None if it is not the name of a file."""
    if '"' not in name:
        return Path(name) if format_of(name) in FORMATS else None
    path = Path(name[1:-1])
    if not re.fullmatch('"[^"]+"', name) or format_of(path) not in FORMATS:
        raise InvalidParameterError(
            f"workload {name!r} is not understood: double quotes go around the whole name of a "
            f"file, which ends in {', '.join(FORMATS)}"
        )
    return path


def _product(names: list[str], delimiter: str | None) -> Workload:
    if len(names) == 1 and names[0].startswith(_TABLES):
        return _marginals(names[0])
    factors = [_factor(name, delimiter) for name in names]
    return factors[0] if len(factors) == 1 else Product(factors)


def _marginals(text: str) -> Workload:
    """Return the tables of every so many attributes."""
    written = re.fullmatch(r"marginals:(\d{1,19}(?:x\d{1,19})*):(\d{1,19})", text)
    if written is None:
        raise InvalidParameterError(f"workload {text!r} is not understood: {_WORKLOAD_HELP}")
    sizes = [int(size) for size in written[1].split("x")]
    many = int(written[2])
    if not many <= len(sizes):
        raise InvalidParameterError(
            f"workload {text!r} asks for tables of {many} attributes, and there are {len(sizes)}"
        )
    return marginals(sizes, combinations(range(len(sizes)), many))


def _factor(text: str, delimiter: str | None) -> Factor:
    path = _file(text)
    if path is not None:
        return _queries(path, delimiter)
    # Not a file, so a kind and its sizes.
    kind, *numbers = text.split(":")
    try:
        sizes = [int(number) for number in numbers]
    except ValueError:
        sizes = []  # no kind takes so few, so the error below is raised
    if kind in _KINDS and len(sizes) == 1:
        return _KINDS[kind](sizes[0])
    if kind == "ranges" and len(sizes) in {1, 2}:
        return Ranges(*sizes)
    raise InvalidParameterError(f"workload {text!r} is not understood: {_WORKLOAD_HELP}")


def _queries(path: Path, delimiter: str | None) -> Dense:
    """Return the rows of a file as queries."""
    # Queries are public, so rounding their decimals costs no privacy.
    matrix = read_source(
        str(path),
        format_of(path),
        delimiter=delimiter if format_of(path) in TEXT else None,
        offered=("--delimiter",),
    ).array
    try:
        return Dense(matrix)
    except (InvalidParameterError, ShapeError) as error:
        # A workload may name several files, so the error says which one.
        raise FileFormatError(f"{path}: {error}") from None


def check_delimiter(delimiter: str | None, read: list[Path]) -> None:
    """Raise if a delimiter is given and no file that is read is text."""
    if delimiter is not None and not any(format_of(path) in TEXT for path in read):
        raise InvalidParameterError(
            f"--delimiter is for {', '.join(TEXT)}, and no such file is read: leave it out"
        )


def check_distinct(target: Path, inputs: list[Path]) -> None:
    """Raise if a file to be written is one that is read, even if forced; or if one is a folder.

    Every file counts together with its statement.
    """
    # Here, where the message can name it; opening a folder fails differently on every system.
    for path in inputs:
        if path.is_dir():
            raise InvalidParameterError(f"{path} is a folder: name a file in it")
    # An input may come with a statement, and a target always does.
    read = [file for path in inputs for file in (path, statement_path(path))]
    check_inputs_survive([target, statement_path(target)], read)


@contextmanager
def search_status() -> Iterator[Callable[[int, float], None]]:
    """Show on a terminal how the gap closes; the function that is yielded takes steps and gap.

    In the block an interrupt ends the process at once.
    """
    # A plain line, where rich would hide the cursor: an interrupted process cannot show it again.
    with interrupted_at_once(), status_line() as show:
        show("optimising")
        yield lambda steps, gap: show(f"optimising: relative gap {gap:.1e} after {steps} steps")


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Show one line of text on standard error, if that is a terminal; it is wiped out at the end.

    The function that is yielded replaces the text.
    """
    terminal = Console(stderr=True).is_terminal
    shown = ""

    def show(text: str) -> None:
        nonlocal shown
        if terminal:
            # Padded, so that nothing is left of a longer text.
            sys.stderr.write(f"\r{text:<{len(shown)}}")
            sys.stderr.flush()
            shown = text

    try:
        yield show
    finally:
        show("")
        show("")
