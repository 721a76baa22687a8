"""The formats of files, and the suffixes that name them."""

from pathlib import Path

from matrixdp.errors import InvalidParameterError

__all__ = [
    "ARROW",
    "CHUNKED",
    "FORMATS",
    "LABELLED",
    "TEXT",
    "check_format",
    "format_of",
    "with_word",
]

TEXT = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
"""Formats of text, and what stands between their cells."""

ARROW = (".parquet", ".arrow")
"""Formats of columns, which need pyarrow."""

FORMATS = (".npy", ".npz", *TEXT, *ARROW)
"""The formats of matrices."""

CHUNKED = (".zarr", ".npy", ".parquet")
"""Folders of chunks, of a matrix that may be larger than a machine."""

LABELLED = (*TEXT, *ARROW)
"""Those that keep the names of rows and columns."""


def format_of(path: str | Path) -> str:
    """Return the end of a file's name that says its format, in lower case; it need not be known.

    Examples
    --------
    >>> format_of("T.CSV"), format_of("sums.tsv.gz"), format_of("notes.txt")
    ('.csv', '.tsv.gz', '.txt')
    """
    name = Path(path).name.lower()
    known = [each for each in FORMATS if name.endswith(each) and name != each]
    return max(known, key=len) if known else Path(name).suffix


def with_word(path: Path, word: str) -> Path:
    """Return a path with a word before the end that says its format.

    Examples
    --------
    >>> with_word(Path("means.csv.gz"), "sum").name
    'means.sum.csv.gz'
    """
    end = len(path.name) - len(format_of(path))
    return path.with_name(f"{path.name[:end]}.{word}{path.name[end:]}")


def check_format(path: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Raise if a file is of none of some formats."""
    if format_of(path) not in formats:
        raise InvalidParameterError(
            f"{path} is of format {format_of(path)!r}: use one of {', '.join(formats)}"
        )
