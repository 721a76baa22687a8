"""Words of a command line with some of them changed: an option can be given once only."""

from collections.abc import Sequence

__all__ = ["changed"]


def changed(words: Sequence[str], *changes: str) -> list[str]:
    """Return options and their values, with those of the changes in place of their former ones."""
    pairs = zip(words[::2], words[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] not in changes[::2] for word in pair]
    return [*kept, *changes]
