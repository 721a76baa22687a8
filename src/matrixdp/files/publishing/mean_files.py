"""The files of means over a private count: the means, and the sum that proves them."""

import io
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import format_of, with_word
from matrixdp.files.publishing.lasting import digest_of, write_paid
from matrixdp.files.publishing.releases import encode_release
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.payment import Payment

__all__ = ["labelled_row", "mean_path", "quotient", "sum_path", "write_means"]

_WORD = "sum"


def sum_path(path: str | PathLike[str]) -> Path:
    """Return where the released sum of saved means is: ``means.sum.csv`` for ``means.csv``."""
    target = Path(path)
    if not target.name:
        raise InvalidParameterError(f"path={str(path)!r} does not name a file")
    return with_word(target, _WORD)


def mean_path(beside: Path) -> Path:
    """Return where the means are whose released sum is in a file; see `sum_path`.

    Examples
    --------
    >>> mean_path(Path("means.sum.csv.gz")).name
    'means.csv.gz'
    """
    end = format_of(beside)
    return beside.with_name(beside.name.removesuffix(end).removesuffix(f".{_WORD}") + end)


def quotient(total: Release, count: Release) -> NDArray[np.float64]:
    """Return a released sum over a released count; a noisy count below 1 counts as 1."""
    return np.asarray(np.asarray(total.value) / max(float(np.asarray(count.value)[0, 0]), 1.0))


def labelled_row(name: str, value: Any, columns: Sequence[str] | None) -> MatrixFile:
    """Return a row with the names of its columns, which then has a name of its own."""
    return MatrixFile(np.asarray(value), columns=columns, index=None if columns is None else [name])


def write_means(
    target: Path,
    total: Release,
    count: Release,
    query: str,
    columns: Sequence[str] | None,
    *,
    force: bool,
    about: About | None = None,
    payment: Payment | None = None,
) -> str:
    """Write means, their sum and its statement, and return the digest of the sum's file.

    Parameters
    ----------
    target : Path
        Of the means.
    total : Release
        The sum, with the guarantee of both: the statement holds the count, too.
    count : Release
        The number of records.
    query : str
        What was asked.
    columns : sequence of str or None
        Names of the columns.
    force : bool
        Whether existing files are replaced.
    about : About, optional
        What is stated of the release.
    payment : Payment, optional
        What paid.
    """
    beside = sum_path(target)
    row = labelled_row(_WORD, total.value, columns)
    data, statement = encode_release(
        Release.from_proof(row, total.proof, total.guarantee, total.mechanism),
        beside.name,
        query=query,
        about=about,
        counts={"records": count},
        payment=payment,
    )
    means = io.BytesIO()
    write_matrix(means, labelled_row("mean", quotient(total, count), columns), format_of(target))
    # The sum last: once it is there, everything is.
    contents = [
        (statement_path(beside), statement),
        (target, means.getvalue()),
        (beside, data),
    ]
    write_paid(contents, payment, force=force)
    return digest_of(data)
