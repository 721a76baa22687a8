"""Output of the program: a table for people, JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.atomic import check_target

__all__ = ["check_file", "print_json", "print_table"]

# Wider than any table, so that measuring one never wraps it.
_ANY_WIDTH = 10_000


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON object; floats are written so that reading them back changes nothing."""
    # JSON has neither NaN nor infinity; a result that is one must not be printed as if it were.
    print(json.dumps(fields, indent=2, allow_nan=False))  # noqa: T201


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None
) -> None:
    """Print rows of text under headings, aligned to the right; a number is never cut."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # rich would shorten numbers to the width of the terminal, which changes what they say.
    needed = Console(width=_ANY_WIDTH).measure(table).maximum
    Console(width=max(needed, Console().width)).print(table)


def check_file(path: Path | None, *suffixes: str, force: bool) -> None:
    """Raise if a target is of another kind, or exists already, before any work is done."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise InvalidParameterError(
            f"{path} does not end in {' or '.join(suffixes)}: name such a file"
        )
    check_target(path, force=force)
