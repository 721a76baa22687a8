"""Sizes, means and covariances of groups, from released counts, sums and second moments."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release

__all__ = ["GroupSummary", "summary_of"]

FloatArray = NDArray[np.float64]

# A size below so many of its standard errors may be that of a group of nobody.
_TIMES_THE_NOISE = 3.0


@dataclass(frozen=True, eq=False)
class GroupSummary:
    """What a release says about groups; public.

    Attributes
    ----------
    groups, columns : tuple of str
        The names of the groups and of the columns.
    counts, count_errors : ndarray, shape (groups,)
        The released sizes, and their standard errors.
    means, mean_errors : ndarray, shape (groups, columns)
        Over the released sizes; a size below 1 counts as 1. Their standard errors to first order.
    uncertain : ndarray of bool, shape (groups,)
        Whether a size is below three of its standard errors: its means may be nothing but noise.
        That is decided by released numbers and by the noise, never by the true size.
    covariances : ndarray, shape (groups, columns, columns), or None
        About the means, where second moments were released. They may have negative eigenvalues.
    """

    groups: tuple[str, ...]
    columns: tuple[str, ...]
    counts: FloatArray
    count_errors: FloatArray
    means: FloatArray
    mean_errors: FloatArray
    uncertain: NDArray[np.bool_]
    covariances: FloatArray | None

    def table(self) -> MatrixFile:
        """Return sizes and means with their standard errors, a row for each group."""
        names, columns = ["count", "count error"], [self.counts, self.count_errors]
        for place, name in enumerate(self.columns):
            names += [f"mean of {name}", f"error of {name}"]
            columns += [self.means[:, place], self.mean_errors[:, place]]
        names.append("uncertain")
        columns.append(self.uncertain.astype(np.float64))
        return MatrixFile(np.column_stack(columns), columns=names, index=self.groups)


def summary_of(
    release: Release, groups: Sequence[str], columns: Sequence[str], order: int
) -> GroupSummary:
    """Return the summary of a release whose columns are counts, sums and second moments."""
    value, errors, width = np.asarray(release.value), release.standard_errors(), len(columns)
    counts, count_errors = value[:, 0], errors[:, 0]
    sizes = np.maximum(counts, 1.0)[:, None]
    means = value[:, 1 : 1 + width] / sizes
    of_sums, of_counts = errors[:, 1 : 1 + width], means * count_errors[:, None]
    covariances = None
    if order == 2:
        left, right = np.triu_indices(width)
        covariances = np.empty((len(groups), width, width))
        covariances[:, left, right] = value[:, 1 + width :] / sizes
        covariances[:, right, left] = covariances[:, left, right]
        covariances -= means[:, :, None] * means[:, None, :]
    return GroupSummary(
        groups=tuple(groups),
        columns=tuple(columns),
        counts=counts,
        count_errors=count_errors,
        means=means,
        mean_errors=np.hypot(of_sums, of_counts) / sizes,
        uncertain=counts < _TIMES_THE_NOISE * count_errors,
        covariances=covariances,
    )
