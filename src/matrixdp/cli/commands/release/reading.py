"""IN of ``matrixdp release``: which options belong to its format, and the matrix in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from matrixdp.cli.shared.labels import Labels, check_labels
from matrixdp.cli.shared.streams import read_source
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import ARROW, LABELLED, TEXT
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["Reading"]


@dataclass(frozen=True)
class Reading:
    """How IN is to be read."""

    suffix: str
    header: Labels | None
    index: Labels | None
    delimiter: str | None
    columns: Sequence[str] | None

    def check(self, largest: float | None) -> None:
        """Refuse options that the format has no use for."""
        for given, option, formats in (
            (largest, "--range", TEXT),
            (self.delimiter, "--delimiter", TEXT),
            (self.header, "--header", LABELLED),
            (self.index, "--index", LABELLED),
            (self.columns, "--columns", LABELLED),
        ):
            if given is not None and self.suffix not in formats:
                raise InvalidParameterError(
                    f"{option} is for {', '.join(formats)}, but IN is {self.suffix}"
                )
        if self.columns is not None and self.suffix in TEXT and self.header is None:
            raise InvalidParameterError("--columns names columns of the first row: add --header")

    def check_of_folder(self) -> None:
        """Refuse options of one file: a folder is released whole, and without labels."""
        labels = {"--columns": self.columns, "--header": self.header, "--index": self.index}
        for option, given in labels.items():
            if given is not None:
                raise InvalidParameterError(
                    f"{option} is for a file, and IN is a folder of chunks or a pattern, which is "
                    "released whole and without labels: write what is to be released elsewhere"
                )

    def read(self, source: str) -> MatrixFile:
        """Return the matrix, with labels that may be published."""
        # Columns of Parquet and Arrow files always have names.
        header = Labels.NAMES if self.suffix in ARROW and self.header is None else self.header
        matrix = read_source(
            source,
            self.suffix,
            header=header is not None,
            index=self.index is not None,
            delimiter=self.delimiter,
            columns=self.columns,
            offered=("--header", "--index", "--delimiter", "--columns"),
        )
        check_labels(matrix, header, self.index, text=self.suffix in TEXT)
        return matrix
