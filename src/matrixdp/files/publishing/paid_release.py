"""The release of a matrix to a file, with counts beside it if wanted, paid for as a whole."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from matrixdp.files.formats.progress import Share, silent
from matrixdp.files.publishing.paid import Publication, checked_request, publish_paid
from matrixdp.files.publishing.paid_counts import CountSchema, PaidCount
from matrixdp.files.publishing.release_file import checked_file, facts_of
from matrixdp.files.publishing.releases import (
    StatedRelease,
    load_stated_release,
    save_release,
    stated_release,
)
from matrixdp.files.publishing.statement import encoded, statement_path
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import PreparedRelease
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.keys.parts import secret_of_part
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.payment import Payer, Payment

__all__ = ["PaidMatrix", "release_prepared_to", "release_to"]


@dataclass(frozen=True, kw_only=True, repr=False)
class PaidMatrix:
    """A matrix and counts of records beside it, of which everything is known but the noise.

    Attributes
    ----------
    main : PreparedRelease
        The matrix, with the guarantee of all together.
    counts : mapping, optional
        The counts, each drawn with a secret of its own.
    query : str, optional
        What was asked, for the statement.
    about : About, optional
        What else it says for people.
    """

    main: PreparedRelease
    counts: Mapping[PaidCount, PreparedRelease] = field(default_factory=dict)
    query: str | None = None
    about: About | None = None

    def drawn(self, secret: bytes, threads: int | None) -> tuple[Release, dict[PaidCount, Release]]:
        """Return the releases with the noise of a secret: the same ones whenever it is called."""
        return self.main.drawn(ReleaseKey.from_bytes(secret), threads=threads), {
            what: count.drawn(ReleaseKey.from_bytes(secret_of_part(secret, what)), threads=threads)
            for what, count in self.counts.items()
        }

    def publication(
        self, target: Path, write: Callable[[Payment], str], others: Sequence[Path] = ()
    ) -> Publication:
        """Return what is paid for, all at once.

        Raises
        ------
        InvalidParameterError, FileFormatError, MissingExtraError
            If the format of the target cannot hold the matrix.
        """
        shown = checked_file(self.main.checked, target)
        statement = stated_release(
            self.main.promise,
            facts_of(target.name, shown, digest=""),
            query=self.query,
            about=self.about,
            # Their values are not known yet.
            counts={
                what: CountSchema(0.0, count.promise.covariance.smallest_singular_value)
                for what, count in self.counts.items()
            },
        )
        draft = encoded(statement)
        # Labels are no part of a statement, but of the file.
        stated = draft + json.dumps([shown.columns, shown.index, shown.corner]).encode()
        rows, columns = self.main.checked.array.shape
        about = {"shape": f"{rows} x {columns}"}
        if self.query is not None:
            about["query"] = self.query
        if self.counts:
            about["beside"] = f"number of records: {', '.join(self.counts)}"
        return Publication(
            cost=self.main.promise,
            target=target,
            others=others,
            draft=draft,
            tag=lambda secret: self._tag(secret, stated),
            about=about,
            write=write,
        )

    def _tag(self, secret: bytes, stated: bytes) -> bytes:
        parts = [(secret, self.main.checked)] + [
            (secret_of_part(secret, what), count.checked) for what, count in self.counts.items()
        ]
        return b"".join(
            ValueTag(own, checked.drawing.noise.context, stated).update(checked.array).digest()
            for own, checked in parts
        )


def release_to(
    mechanism: GaussianMechanism,
    path: str | PathLike[str],
    matrix: Any,
    *,
    privacy_filter: Payer | None = None,
    request: str | None = None,
    force: bool = False,
    threads: int | None = None,
    query: str | None = None,
    about: About | None = None,
    advance: Share = silent,
) -> Release:
    """Release a matrix to a file; see `GaussianMechanism.release_to`.

    The statement can name the query that was answered. ``advance`` is called with each further
    share of the matrix that is written.
    """
    return release_prepared_to(
        PaidMatrix(main=mechanism.prepared(matrix), query=query, about=about),
        path,
        privacy_filter=privacy_filter,
        request=request,
        force=force,
        threads=threads,
        advance=advance,
    ).release


def release_prepared_to(
    matrix: PaidMatrix,
    path: str | PathLike[str],
    *,
    privacy_filter: Payer | None,
    request: str | None,
    force: bool,
    threads: int | None,
    advance: Share = silent,
) -> StatedRelease:
    """Release a prepared matrix and the counts beside it to a file, and return all of it."""
    target = Path(path).absolute()
    name = checked_request(privacy_filter, request, [target, statement_path(target)], force=force)
    workers = None if threads is None else checked_threads(threads)
    done: list[StatedRelease] = []

    def write(payment: Payment) -> str:
        release, counts = matrix.drawn(payment.secret, workers)
        done.append(StatedRelease(release, matrix.query, counts, ()))
        return save_release(
            release,
            target,
            force=force,
            query=matrix.query,
            about=matrix.about,
            counts=counts,
            advance=advance,
            payment=payment,
        )

    publish_paid(privacy_filter, name, matrix.publication(target, write))
    return done[0] if done else load_stated_release(target)
