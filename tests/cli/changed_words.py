"""Words of a command line, changed: an option can be given once only, and may be odd."""

from collections.abc import Sequence

__all__ = ["ODD_WORDS", "changed"]

ODD_WORDS = (
    *("", "-", "--", "=", "a=", "a=1,1", "nan", "inf", "-1", "0", "1e400", "1e-400", "5e-324"),
    *("1_0", "1" * 30, "9" * 5000, f"{'9' * 5000}x3", "x" * 5000, "1," * 3000, "²", "\udc80", "é"),
    *("\n", "\t", "none", "0x0", "3x3x3", "prefix:0", "prefix:2x", f"prefix:{'9' * 5000}"),
    *(f"marginals:{'9' * 5000}:0", "prefix:4" * 500, "total:2*" * 200 + "total:2", "(" * 3000),
    *("--mu=1", "--json", "--index=public", "--columns=a,a", "--delimiter=\n", "--threads=0"),
    *("--nonsense", "--help", "missing.csv", ".", "..", "/", "in.csv/x"),
)
"""What users may type by mistake or malice in place of any word."""


def changed(words: Sequence[str], *changes: str) -> list[str]:
    """Return options and their values, with those of the changes in place of their former ones."""
    pairs = zip(words[::2], words[1::2], strict=True)
    kept = [word for pair in pairs if pair[0] not in changes[::2] for word in pair]
    return [*kept, *changes]
