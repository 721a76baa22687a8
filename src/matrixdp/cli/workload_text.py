"""Workloads in words: ``prefix:128``, ``ranges:64:8 * total:5``, ``identity:9 + total:9``."""

from pathlib import Path

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.mechanisms.matrix_files import FORMATS, read_matrix
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
)

__all__ = ["WORKLOAD_HELP", "read_workload", "workload_files"]

WORKLOAD_HELP = (
    "prefix:N, ranges:N, ranges:N:LONGEST, identity:N, total:N or a matrix file; * between "
    "attributes, + between parts."
)
_KINDS: dict[str, type[Identity | Total | Prefix]] = {
    "identity": Identity,
    "total": Total,
    "prefix": Prefix,
}


def read_workload(text: str) -> Workload:
    """Return the workload that a text names.

    Examples
    --------
    >>> read_workload("prefix:10*total:3 + identity:10*identity:3")
    Prefix(10) x Total(3) + Identity(10) x Identity(3)
    """
    parts = [_product(part) for part in text.split("+")]
    return parts[0] if len(parts) == 1 else Union(parts)


def workload_files(text: str) -> list[Path]:
    """Return the files that a text names.

    Examples
    --------
    >>> [path.name for path in workload_files("prefix:10*a.npy + b.csv*total:3")]
    ['a.npy', 'b.csv']
    """
    names = [name.strip() for part in text.split("+") for name in part.split("*")]
    return [Path(name) for name in names if Path(name).suffix in FORMATS]


def _product(text: str) -> Workload:
    factors = [_factor(factor.strip()) for factor in text.split("*")]
    return factors[0] if len(factors) == 1 else Product(factors)


def _factor(text: str) -> Factor:
    if Path(text).suffix in FORMATS:
        try:
            with Path(text).open("rb") as file:
                return Dense(read_matrix(file, Path(text).suffix, text).array)
        except FileNotFoundError:
            raise FileFormatError(f"{text} does not exist: name a file with a matrix") from None
    kind, *numbers = text.split(":")
    try:
        sizes = [int(number) for number in numbers]
    except ValueError:
        sizes = []
    if kind in _KINDS and len(sizes) == 1:
        return _KINDS[kind](sizes[0])
    if kind == "ranges" and len(sizes) in {1, 2}:
        return Ranges(*sizes)
    raise InvalidParameterError(f"workload {text!r} is not understood: {WORKLOAD_HELP}")
