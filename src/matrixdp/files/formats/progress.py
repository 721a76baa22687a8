"""Progress of reading and writing files, as progress bars show it.

Work is done in parts of at most a fraction of a second: between two parts Python answers an
interrupt.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, TypeVar

__all__ = ["Share", "parts_of", "read_with_progress", "silent"]

T = TypeVar("T")

Share = Callable[[float], None]
"""Called with the share of the work done since the last call; all shares add up to 1."""


def silent(_: float) -> None:
    """Show no progress."""


def parts_of(rows: int, width: int, cells: int, advance: Share) -> Iterator[slice]:
    """Yield the rows of a matrix in parts of about so many cells; call ``advance`` after each.

    Examples
    --------
    >>> list(parts_of(5, 3, 6, silent))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    together = max(1, cells // max(width, 1))
    for start in range(0, rows, together):
        stop = min(start + together, rows)
        yield slice(start, stop)
        advance((stop - start) / rows)


def read_with_progress(
    parts: Iterable[T], file: BinaryIO, size: int, advance: Share, *, together: int = 1
) -> Iterator[T]:
    """Yield what is read from a file of so many bytes; call ``advance`` after so many parts.

    Examples
    --------
    >>> import io
    >>> file, shares = io.BytesIO(b"1234"), []
    >>> list(read_with_progress(iter(lambda: file.read(3), b""), file, 4, shares.append))
    [b'123', b'4']
    >>> shares
    [0.75, 0.25, 0.0]
    """
    size, passed = max(size, 1), 0
    for number, part in enumerate(parts, start=1):
        yield part
        if number % together == 0:
            position = file.tell()
            advance((position - passed) / size)
            passed = position
    advance((size - passed) / size)
