"""How far reading or writing a file has come, told to whoever waits for it.

Work is done in parts of at most a fraction of a second: between two parts Python answers an
interrupt.
"""

from collections.abc import Callable, Iterator

__all__ = ["Share", "parts_of", "silent"]

Share = Callable[[float], None]
"""Called with the share of the work done since the last call; all shares add up to 1."""


def silent(_: float) -> None:
    """Tell nobody."""


def parts_of(rows: int, width: int, cells: int, advance: Share) -> Iterator[slice]:
    """Yield the rows of a matrix in parts of about so many cells, and tell when each is done.

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
