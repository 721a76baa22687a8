"""The index of a pandas frame within an Arrow schema: columns of labels, and not of data."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["PandasIndex", "pandas_index"]

_KEY = b"pandas"  # under which pandas describes its frame in the metadata of the schema


class PandasIndex(NamedTuple):
    """The columns that a frame's index is in, and what it is called.

    A range has no column: it is stated by its numbers. One that only counts rows from 0 says
    nothing and is left out.
    """

    positions: tuple[int, ...]
    name: str
    numbers: range | None = None


def pandas_index(metadata: dict[bytes, bytes] | None, names: Sequence[str]) -> PandasIndex:
    """Return the index that pandas states for the columns of a file.

    Parameters
    ----------
    metadata : dict of bytes, or None
        Of an Arrow schema.
    names : sequence of str
        The names of its columns.

    Examples
    --------
    >>> stated = {b"pandas": b'{"index_columns": ["id"], "columns": []}'}
    >>> pandas_index(stated, ["a", "id"])
    PandasIndex(positions=(1,), name='id', numbers=None)
    """
    described = _described(metadata)
    levels = _listed(described, "index_columns")
    often = Counter(names)
    positions = {name: position for position, name in enumerate(names) if often[name] == 1}
    # A level that is not the name of exactly one column is a range, or not pandas' own doing.
    stated = [level for level in levels if isinstance(level, str) and level in positions]
    found = list(dict.fromkeys(stated))  # each once, as in any frame
    called = {
        each["field_name"]: each.get("name")
        for each in _listed(described, "columns")
        if isinstance(each, dict) and isinstance(each.get("field_name"), str)
    }
    # A level without a name has a made-up column, which is described by no name.
    words = [called.get(level, level) or "" for level in found]
    name = "/".join(map(str, words)) if any(words) else ""
    numbers = _stated_range(levels[0]) if len(levels) == 1 and not found else None
    return PandasIndex(tuple(positions[level] for level in found), name, numbers)


def _stated_range(level: object) -> range | None:
    """Return the numbers of a range, unless it counts from 0."""
    if not isinstance(level, dict) or level.get("kind") != "range":
        return None
    ends: list[Any] = [level.get(key) for key in ("start", "stop", "step")]
    # Larger ranges have no length in Python, and no file has so many rows.
    if not all(type(end) is int and abs(end) < 1 << 61 for end in ends) or ends[2] == 0:
        return None
    numbers = range(*ends)
    return None if numbers == range(len(numbers)) else numbers


def _described(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    """Return what pandas says about a frame; nothing if it is not pandas that says it."""
    try:
        described = json.loads((metadata or {}).get(_KEY, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return described if isinstance(described, dict) else {}


def _listed(described: dict[str, Any], key: str) -> list[Any]:
    value = described.get(key)
    return value if isinstance(value, list) else []
