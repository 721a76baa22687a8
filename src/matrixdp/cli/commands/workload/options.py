"""Options of the ``matrixdp workload`` commands, checks of their files, the status of a search."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from matrixdp.cli.commands.workload.text import WORKLOAD_HELP
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import TEXT, format_of
from matrixdp.files.publishing.atomic import check_inputs_survive
from matrixdp.files.publishing.statement import statement_path

__all__ = [
    "SavedStrategyOption",
    "WorkloadOption",
    "check_delimiter",
    "check_distinct",
    "search_status",
    "status_line",
]

WorkloadOption: TypeAlias = Annotated[str, typer.Option("--workload", help=WORKLOAD_HELP)]
SavedStrategyOption: TypeAlias = Annotated[
    Path | None, typer.Option("--strategy", help="A strategy saved by workload optimise.")
]


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
