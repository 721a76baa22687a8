"""Answers to a workload as a table for people: a row for each query, with its name."""

import csv
import io
from typing import Any

from numpy.typing import NDArray

from matrixdp.files.formats import TEXT
from matrixdp.workloads import Workload
from matrixdp.workloads.names import query_names

__all__ = ["encode_answers"]


def encode_answers(
    workload: Workload, answers: NDArray[Any], errors: NDArray[Any] | None, suffix: str
) -> bytes:
    """Return the text of a table with the columns ``query``, ``answer`` and ``standard_error``.

    Parameters
    ----------
    workload : Workload
        The queries, whose order is that of the rows.
    answers : ndarray, shape (queries,)
        One for each query.
    errors : ndarray, optional
        The standard error of each answer; without them the table has two columns.
    suffix : str
        ``.csv`` or ``.tsv``.
    """
    columns = [answers.tolist()] if errors is None else [answers.tolist(), errors.tolist()]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=TEXT[suffix])
    writer.writerow(["query", "answer", "standard_error"][: 1 + len(columns)])
    # repr writes the digits that read back to the same float.
    for name, *numbers in zip(query_names(workload), *columns, strict=True):
        writer.writerow([name, *map(repr, numbers)])
    return text.getvalue().encode()
