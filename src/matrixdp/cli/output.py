"""How results leave the program: a table for people, JSON for programs, files that lose nothing."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from matrixdp.errors import InvalidParameterError

__all__ = ["print_json", "print_table", "refuse_existing", "write_file"]


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object; floats are written so that reading them back changes nothing."""
    print(json.dumps(record, indent=2, allow_nan=False))  # noqa: T201


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Print rows of text under headings, numbers to the right."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def refuse_existing(path: Path | None, *, force: bool, suffix: str | tuple[str, ...]) -> None:
    """Refuse a target of another kind or that exists already, before any work is done."""
    if path is None:
        return
    allowed = (suffix,) if isinstance(suffix, str) else suffix
    if path.suffix.lower() not in allowed:
        raise InvalidParameterError(
            f"{path} does not end in {' or '.join(allowed)}: name such a file"
        )
    if path.exists() and not force:
        raise InvalidParameterError(f"{path} exists: name another file, or pass --force")
    if not path.parent.is_dir():
        raise InvalidParameterError(f"{path.parent} is not a folder: make it first")


def write_file(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file whole or not at all: into a temporary beside it, then renamed over it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
