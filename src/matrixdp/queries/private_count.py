"""The mean of records whose number is private too: a released sum over a released count."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.files.publishing.atomic import check_target
from matrixdp.files.publishing.mean_files import labelled_row, quotient, sum_path, write_means
from matrixdp.files.publishing.paid import checked_request, publish_paid
from matrixdp.files.publishing.paid_counts import check_paid
from matrixdp.files.publishing.paid_release import PaidMatrix
from matrixdp.files.publishing.release_file import warn_of_lost_labels
from matrixdp.files.publishing.releases import load_stated_release
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile, MatrixLabels
from matrixdp.mechanisms.release import Release
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.keys.stream import KEY_BYTES
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Payer, Payment, check_payer
from matrixdp.queries.preview import AnswerRanges, Preview
from matrixdp.queries.sums import Sum
from matrixdp.sensitivity.sets import FrobeniusBall

__all__ = ["MeanRelease", "previewed_means", "release_means_to", "released_means", "sum_path"]

FloatArray = NDArray[np.float64]


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
        return quotient(self.total, self.count)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the means: one row."""
        return self.total.shape

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns, if they have names."""
        named = self.total.labels
        return None if named is None else MatrixLabels(named.columns, ["mean"])

    def standard_errors(self) -> FloatArray:
        """Return approximate standard deviations of the means, from the noise of sum and count.

        To first order: that of the sum, and the mean times that of the count, over the count.
        """
        count = max(float(self.count.value[0, 0]), 1.0)
        of_count = self.value * self.count.standard_errors()
        return np.asarray(np.hypot(self.total.standard_errors(), of_count) / count)

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
            the query, or of the file that the means were read from.
        """
        _check_columns(columns, self.shape[1])
        target, beside = Path(path), sum_path(path)
        for file in (target, beside, statement_path(beside)):
            check_target(file, force=force)
        if columns is None and self.total.labels is not None:
            warn_of_lost_labels(self.total, target)
        self._write(target, force=force, columns=columns)

    def _write(
        self,
        target: Path,
        *,
        force: bool,
        columns: Sequence[str] | None = None,
        about: About | None = None,
        payment: Payment | None = None,
    ) -> str:
        """Write the files, and return the digest of the sum's."""
        names = columns
        # Means that were read from a file have the names of that file.
        if columns is None and self.total.labels is not None:
            names = self.total.labels.columns
        # Stated with the guarantee of both, because the statement holds the count, too.
        total = Release.from_proof(
            self.total.value, self.total.proof, self.guarantee, self.total.mechanism
        )
        return write_means(
            target, total, self.count, self.query, names, force=force, about=about, payment=payment
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
    of_records: Sum,
    budget: Budget,
    query: str,
    *,
    privacy_filter: Payer | None = None,
    threads: int | None = None,
) -> MeanRelease:
    """Return sum and count of records with exact noise, within one budget.

    A filter pays for both at once, after all checks and before anything is drawn.
    """
    shares = _Shares.of(of_records, budget)
    check_payer(privacy_filter)
    workers = None if threads is None else checked_threads(threads)
    prepared = shares.prepared(data, query, of_records.bounds.names)
    # Everything is checked before the filter pays, and nothing can be refused after it.
    if privacy_filter is not None:
        privacy_filter.spend(shares.both)
    return shares.means(prepared, secrets.token_bytes(KEY_BYTES), workers)


def previewed_means(of_records: Sum, budget: Budget, query: str, ranges: AnswerRanges) -> Preview:
    """Return what means over a private count will be like."""
    shares = _Shares.of(of_records, budget)
    return Preview(
        query,
        shares.of_sum.sensitivity,
        shares.both,
        shares.of_sum.covariance.entry_scales((1, of_records.bounds.columns)),
        ranges,
        count_error=float(shares.of_count.covariance.entry_scales((1, 1)).item()),
    )


def release_means_to(
    path: str | PathLike[str],
    data: Any,
    of_records: Sum,
    budget: Budget,
    query: str,
    *,
    privacy_filter: Payer | None = None,
    request: str | None = None,
    force: bool = False,
    threads: int | None = None,
    columns: Sequence[str] | None = None,
    about: About | None = None,
) -> MeanRelease:
    """Release means with sum and count to files; see `MeanRelease.save` and `Query.release_to`."""
    shares, target = _Shares.of(of_records, budget), Path(path).absolute()
    beside, names = sum_path(target), of_records.bounds.names if columns is None else columns
    _check_columns(names, of_records.bounds.columns)
    files = [target, beside, statement_path(beside)]
    name = checked_request(privacy_filter, request, files, force=force)
    workers = None if threads is None else checked_threads(threads)
    prepared = shares.prepared(data, query, names, about)
    done: list[MeanRelease] = []

    def write(payment: Payment) -> str:
        released = shares.means(prepared, payment.secret, workers)
        done.append(released)
        return released._write(target, force=force, columns=names, about=about, payment=payment)  # noqa: SLF001 - of this module

    publish_paid(privacy_filter, name, prepared.publication(beside, write, others=[target]))
    return done[0] if done else MeanRelease.load(target)


@dataclass(frozen=True)
class _Shares:
    """How a sum and a count share a budget."""

    total: Sum
    of_sum: IMGM
    of_count: IMGM
    both: Guarantee

    @classmethod
    def of(cls, total: Sum, budget: Budget) -> "_Shares":
        check_budget(budget)
        parts = budget.split([math.sqrt(total.bounds.columns), 1.0])
        of_sum = IMGM(total.sensitivity, parts[0])
        of_count = IMGM(FrobeniusBall(1.0, "add-remove"), parts[1])
        mu = composed_mu([of_sum.mu, of_count.mu])
        both = Guarantee.of_budget(budget, mu=mu, neighbouring="add-remove")
        return cls(total, of_sum, of_count, both)

    def prepared(
        self,
        data: Any,
        query: str,
        columns: Sequence[str] | None = None,
        about: About | None = None,
    ) -> PaidMatrix:
        """Read the records, and return all but the noise."""
        part = self.total.collected(data)
        names = None if columns is None else list(columns)
        summed = labelled_row("sum", self.total.finish(part), names)
        main = self.of_sum.prepared(summed)
        return PaidMatrix(
            main=main._replace(promise=main.promise._replace(guarantee=self.both)),
            counts={"records": self.of_count.prepared(np.array([[float(part.records)]]))},
            query=query,
            about=about,
        )

    def means(self, prepared: PaidMatrix, secret: bytes, threads: int | None) -> MeanRelease:
        """Return the release with the noise of a secret."""
        total, counts = prepared.drawn(secret, threads)
        labels = total.value.labels if isinstance(total.value, MatrixFile) else None
        alone = Release.from_proof(
            np.asarray(total.value), total.proof, self.of_sum.guarantee, total.mechanism, labels
        )
        return MeanRelease(alone, counts["records"], self.both, str(prepared.query))


def _check_columns(columns: Sequence[str] | None, width: int) -> None:
    if columns is not None and len(columns) != width:
        raise ShapeError(f"columns has {len(columns)} names for {width} columns: pass one for each")
