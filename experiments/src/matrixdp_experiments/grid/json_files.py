"""Small typed JSON files of results: read with their types checked, written whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.locks import locked

__all__ = ["alone_with", "read_json", "write_json"]

Value = TypeVar("Value")


def read_json(path: Path, kind: type[Value]) -> Value:
    """Return what a file holds, or raise if it is not of that kind."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        raise FileFormatError(
            f"{path} is not what an experiment wrote ({error}): delete it, and run again"
        ) from error


def write_json(path: Path, value: Any) -> None:
    """Write a value; a file that is there already is replaced once the new one is complete."""
    # Here and not at the start of a grid: wrong input then leaves no empty folders behind.
    path.parent.mkdir(parents=True, exist_ok=True)
    # Indented, since results are kept under version control and are read in differences.
    content = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    write_all([(path, content)], force=True)


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Keep other processes out of their blocks for the same file, to read it and write it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the file itself: whoever waits for it would hold the one that was replaced meanwhile.
    with path.with_name(f".{path.name}.lock").open("ab") as file, locked(file):
        yield
