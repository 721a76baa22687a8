"""Answers to a workload as a table for people: a row for each query, with its name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.workloads import Workload
from matrixdp.workloads.names import query_names

__all__ = ["answer_table"]


def answer_table(
    workload: Workload, answers: NDArray[Any], errors: NDArray[Any] | None
) -> MatrixFile:
    """Return a table with the columns ``query``, ``answer`` and ``standard_error``.

    Parameters
    ----------
    workload : Workload
        The queries, whose order is that of the rows.
    answers : ndarray, shape (queries,)
        One for each query.
    errors : ndarray, optional
        The standard error of each answer; without them the table has two columns.
    """
    columns = [answers] if errors is None else [answers, errors]
    return MatrixFile(
        np.column_stack(columns),
        columns=["answer", "standard_error"][: len(columns)],
        index=list(query_names(workload)),
        corner="query",
    )
