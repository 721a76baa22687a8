"""The JSON statement beside a saved file: where it is, how it is written and how it is read.

A statement says what the file guarantees and how its noise was made; it holds nothing of the input.
The guarantee is proven again whenever it is read.
"""

import json
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar, get_args, get_type_hints

import msgspec

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.opening import opened
from matrixdp.files.publishing.atomic import check_target
from matrixdp.files.schemas.values import Schema

__all__ = [
    "check_archive_name",
    "check_archive_target",
    "check_digest",
    "decoded",
    "encoded",
    "read_schema",
    "read_statement",
    "schema_of",
    "statement_path",
]

R = TypeVar("R", bound=Schema)


# Unlike other schemas this one ignores fields that it does not know.
class _Schema(msgspec.Struct):
    """The one field that every statement has, whatever else is in it."""

    schema: str


def statement_path(path: Path) -> Path:
    """Return the path of a file's statement: beside it, with ``.json`` added to its name."""
    return path.with_name(path.name + ".json")


def check_archive_name(target: Path) -> None:
    """Raise unless a file is named like an archive of arrays."""
    if target.suffix.lower() != ".npz":
        raise InvalidParameterError(f"{target} does not end in .npz: name such a file")


def check_archive_target(target: Path, *, force: bool) -> None:
    """Raise if the file or its statement could not be written, before any work is done."""
    check_archive_name(target)
    check_target(target, force=force)
    check_target(statement_path(target), force=force)


def encoded(statement: Schema) -> bytes:
    """Return a statement as JSON text; its numbers read back to the same floats."""
    # Indented, because people read statements. msgspec writes the shortest digits of each float.
    return msgspec.json.format(msgspec.json.encode(statement), indent=2) + b"\n"


def decoded(data: bytes, kind: type[R], name: str) -> R:
    """Return the statement of a kind that a JSON text holds.

    Parameters
    ----------
    data : bytes
        The text.
    kind : type
        A `Schema` whose field ``schema`` is a `Literal` of the names that it reads.
    name : str
        What to call the file in errors.

    Raises
    ------
    FileFormatError
        If the text is not such a statement, or holds more; the message names the field.
    """
    # Each kind names its schemas once, in the type of the field.
    schemas = get_args(get_type_hints(kind)["schema"])
    try:
        # First the schema alone: a statement of another kind deserves a better message than the
        # first field in which the two differ.
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema in schemas:
            statement = msgspec.json.decode(data, type=kind)
            json.loads(data, parse_float=_number, parse_int=_number, object_pairs_hook=_named_once)
            return statement
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"{name} is not a statement of matrixdp: {error}") from error
    except _UndeclaredError:
        raise FileFormatError(
            f"{name} holds more than a statement says: a name twice, or a number with "
            "digits that its float does not have"
        ) from None
    raise FileFormatError(f"{name} has schema {schema!r}, not {' or '.join(map(repr, schemas))}")


class _UndeclaredError(Exception):
    """A text holds something that a reader of statements skips."""


def _number(text: str) -> float:
    """Return a number whose digits are those of a float, or raise: other digits may be private."""
    number = float(text)
    try:
        exact = Decimal(text) == Decimal(repr(number))
    except InvalidOperation:  # an exponent beyond all bounds
        exact = False
    if not exact:
        raise _UndeclaredError
    return number


def _named_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object whose names are all different, or raise."""
    if len(dict(pairs)) < len(pairs):
        raise _UndeclaredError
    return dict(pairs)


def read_statement(source: Path, kind: type[R], what: str) -> R:
    """Read the statement beside a file.

    Parameters
    ----------
    source : path
        The file that the statement belongs to.
    kind : type
        The kind of statement.
    what : str
        What the two files are together, for errors.

    Raises
    ------
    FileFormatError
        If the statement is missing or is not of that kind.
    """
    beside = statement_path(source)
    if not beside.exists():
        raise FileFormatError(
            f"{beside} is missing: {what} is a file with its .json statement beside it"
        )
    with opened(beside) as file:
        return decoded(file.read(), kind, beside.name)


def read_schema(source: Path) -> str:
    """Return the schema of the statement beside a file: what kind of file it is.

    Raises
    ------
    FileFormatError
        If the statement is missing or has no schema.
    """
    beside = statement_path(source)
    with opened(beside) as file:
        return schema_of(file.read(), beside.name)


def schema_of(data: bytes, name: str) -> str:
    """Return the schema of the text of a statement; errors call it by a name."""
    try:
        return msgspec.json.decode(data, type=_Schema).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"{name} is not a statement of matrixdp: {error}") from error


def check_digest(found: str, stated: str, source: Path) -> None:
    """Raise if a file does not have the digest that its statement gives."""
    if found != stated:
        raise FileFormatError(
            f"{source} is not the file that its statement describes: its digest differs"
        )
