"""The mean of records whose number is private too: a released sum over a released count."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, ShapeError
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import format_of, with_word
from matrixdp.files.publishing.atomic import check_target, write_all
from matrixdp.files.publishing.paid_counts import check_paid
from matrixdp.files.publishing.releases import (
    encode_release,
    load_stated_release,
    warn_of_lost_labels,
)
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.noise.application.threads import checked_threads
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Payer, check_payer
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.sums import Sum, exact_total
from matrixdp.sensitivity.sets import FrobeniusBall

__all__ = ["MeanRelease", "released_means", "sum_path"]

FloatArray = NDArray[np.float64]


def sum_path(path: str | PathLike[str]) -> Path:
    """Return where the released sum of saved means is: ``means.sum.csv`` for ``means.csv``."""
    target = Path(path)
    if not target.name:
        raise InvalidParameterError(f"path={str(path)!r} does not name a file")
    return with_word(target, "sum")


@dataclass(frozen=True)
class MeanRelease:
    """A released sum and a released count; their quotient is post-processing.

    Attributes
    ----------
    total, count : Release
        What was measured.
    guarantee : Guarantee
        Of both together.
    query : str
        What was asked, and under which bounds.

    Raises
    ------
    InvalidParameterError
        If the guarantee claims less than the two releases spend together.
    """

    total: Release
    count: Release
    guarantee: Guarantee
    query: str

    def __post_init__(self) -> None:
        """Raise unless the guarantee covers both releases."""
        check_paid(self.total.proof.mu, {"records": self.count}, self.guarantee)

    @property
    def value(self) -> FloatArray:
        """The sum over the count; a noisy count below 1 counts as 1."""
        return np.asarray(self.total.value / max(float(self.count.value[0, 0]), 1.0))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the means: one row."""
        return self.total.shape

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        """Return the means: what numpy and scikit-learn see."""
        return np.array(self.value, dtype=dtype, copy=copy)

    def save(
        self,
        path: str | PathLike[str],
        *,
        force: bool = False,
        columns: Sequence[str] | None = None,
    ) -> None:
        """Write the means as plain numbers, and beside them what proves the guarantee.

        For ``means.csv`` the sum is saved as ``means.sum.csv``; its statement
        ``means.sum.csv.json`` holds the count, and the guarantee of both. The means follow from
        these two, and have no statement of their own.

        Parameters
        ----------
        path : path
            Ending in ``.csv``, ``.npy`` or any other format of `Release.save`.
        force : bool, optional
            Whether to replace existing files; by default they are refused.
        columns : sequence of str, optional
            Names of the columns, which ``.npy`` and ``.npz`` files do not keep; by default those of
            the file that the means were read from.
        """
        if columns is not None and len(columns) != self.shape[1]:
            raise ShapeError(
                f"columns has {len(columns)} names for {self.shape[1]} columns: pass one for each"
            )
        target, beside = Path(path), sum_path(path)
        for file in (target, beside, statement_path(beside)):
            check_target(file, force=force)
        names = columns
        # Means that were read from a file have the names of that file.
        if columns is None and self.total.labels is not None:
            names = self.total.labels.columns
            warn_of_lost_labels(self.total, target)
        labelled = MatrixFile(
            np.asarray(self.total.value), columns=names, index=None if names is None else ["sum"]
        )
        # Stated with the guarantee of both, because the statement holds the count, too.
        total = Release.from_proof(labelled, self.total.proof, self.guarantee, self.total.mechanism)
        data, statement = encode_release(
            total, beside.name, query=self.query, counts={"records": self.count}
        )
        means = io.BytesIO()
        write_matrix(
            means,
            MatrixFile(self.value, columns=names, index=None if names is None else ["mean"]),
            format_of(target),
        )
        write_all(
            [
                (statement_path(beside), statement),
                (beside, data),
                (target, means.getvalue()),
            ],
            force=force,
            release=True,
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "MeanRelease":
        """Read what proves saved means, and verify it; the means are computed again.

        Raises
        ------
        FileFormatError
            If the sum or its statement is missing, or does not prove the guarantee.
        """
        beside = sum_path(path)
        saved = load_stated_release(beside)
        if "records" not in saved.counts or saved.query is None:
            raise FileFormatError(
                f"{statement_path(beside)} states no number of records: it is not of saved means"
            )
        both = saved.release.guarantee
        alone = Guarantee.of_mu(
            saved.release.proof.mu, delta=both.delta, neighbouring=both.neighbouring
        )
        read = saved.release
        total = Release.from_proof(read.value, read.proof, alone, read.mechanism, read.labels)
        return cls(total, saved.counts["records"], both, saved.query)


def released_means(
    data: Any,
    bounds: PublicBounds,
    budget: Budget,
    query: str,
    *,
    privacy_filter: Payer | None = None,
    threads: int | None = None,
) -> MeanRelease:
    """Return sum and count of records with exact noise, within one budget.

    A filter pays for both at once, after all checks and before anything is drawn.
    """
    check_budget(budget)
    check_payer(privacy_filter)
    workers = None if threads is None else checked_threads(threads)
    shares = budget.split([math.sqrt(bounds.columns), 1.0])
    summed = Sum(bounds, "add-remove")
    of_sum = IMGM(summed.sensitivity, shares[0])
    of_count = IMGM(FrobeniusBall(1.0, "add-remove"), shares[1])
    both = Guarantee.of_budget(
        budget,
        mu=composed_mu([of_sum.mu, of_count.mu]),
        neighbouring="add-remove",
    )
    total = exact_total(data, summed.grid)
    answers = (total.rounded(0) * summed.grid.steps, np.array([[float(total.records)]]))
    # Everything is checked before the filter pays, and nothing can be refused after it.
    for mechanism, answer in zip((of_sum, of_count), answers, strict=True):
        mechanism.prepared(answer)
    if privacy_filter is not None:
        privacy_filter.spend(both)
    return MeanRelease(
        of_sum.release(answers[0], threads=workers),
        of_count.release(answers[1], threads=workers),
        both,
        query,
    )
