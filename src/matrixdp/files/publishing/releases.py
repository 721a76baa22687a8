"""Releases in files: the matrix, and beside it the statement of what it guarantees."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import msgspec

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.files.formats.matrices import read_matrix, write_matrix
from matrixdp.files.formats.numpy_format import map_npy, read_layout
from matrixdp.files.formats.opening import opened
from matrixdp.files.formats.progress import Share, silent
from matrixdp.files.formats.suffixes import TEXT, format_of
from matrixdp.files.publishing.atomic import check_target, hidden_beside, hidden_file
from matrixdp.files.publishing.lasting import write_paid
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.files.publishing.paid_counts import (
    CountSchema,
    PaidCount,
    check_paid,
    count_of,
    stated_count,
)
from matrixdp.files.publishing.release_file import MatrixSchema, facts_of, labelled_file
from matrixdp.files.publishing.statement import (
    check_digest,
    encoded,
    read_statement,
    statement_path,
)
from matrixdp.files.publishing.undeclared import check_nothing_undeclared
from matrixdp.files.schemas.about import (
    AboutSchema,
    about_of,
    checked_stamp,
    stamped,
    stated_about,
)
from matrixdp.files.schemas.steps import StepSchema
from matrixdp.files.schemas.values import (
    CovarianceSchema,
    EvidenceSchema,
    GuaranteeSchema,
    MechanismName,
    Schema,
    SensitivitySchema,
    covariance_of,
    guarantee_of,
    sensitivity_of,
    stated_covariance,
    stated_evidence,
    stated_guarantee,
    stated_sensitivity,
)
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import Promise
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release, described
from matrixdp.noise import NOISE_VERSION
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Evidence, Payment

__all__ = [
    "ReleaseStatement",
    "StatedRelease",
    "encode_release",
    "load_release",
    "load_stated_release",
    "promise_of",
    "save_release",
    "stated_release",
    "verified_statement",
    "verify_release",
]


class ReleaseStatement(Schema, frozen=True, omit_defaults=True):
    """The statement of a saved release."""

    schema: Literal["matrixdp-release/2"]
    mechanism: MechanismName
    guarantee: GuaranteeSchema
    in_words: str  # for people; checked against the numbers, since people believe it
    sensitivity: SensitivitySchema
    covariance: CovarianceSchema
    noise: str
    file: MatrixSchema
    # Of the exact noise within directional noise.
    floor: float | None = None
    # What was computed from the records and under which bounds, for people; the set proves itself.
    query: str | None = None
    # Counts of records, only if they were paid for; the guarantee covers them, too.
    counts: dict[PaidCount, CountSchema] = msgspec.field(default_factory=dict)
    # Steps of post-processing, in their order. The file holds the matrix as it was before them.
    applied: tuple[StepSchema, ...] = ()
    # The entry of the ledger that paid, if one did.
    payment: EvidenceSchema | None = None
    # For people: what it is about, in the words of whoever made it; when, and by which version.
    about: AboutSchema | None = None
    date: str | None = None
    version: str | None = None


class StatedRelease(NamedTuple):
    """A saved release and what its statement says beside it.

    The query that it answers, the counts that its guarantee covers, the steps that were applied.
    """

    release: Release
    query: str | None
    counts: dict[PaidCount, Release]
    applied: tuple[StepSchema, ...]


def save_release(
    release: Release,
    path: str | PathLike[str],
    *,
    force: bool = False,
    query: str | None = None,
    about: About | None = None,
    counts: Mapping[PaidCount, Release] | None = None,
    applied: tuple[StepSchema, ...] = (),
    advance: Share = silent,
    payment: Payment | None = None,
) -> str:
    """Write a release and its statement, and return the digest of its file; see `Release.save`.

    The statement can name the query that was answered, hold counts of records that the guarantee
    of the release pays for, too, list the steps that were applied to it, and say where its payment
    stands. ``advance`` is called with each further share of the matrix that is written. Files that
    an earlier attempt at the same payment has made stay.
    """
    target = _named(path)
    beside = statement_path(target)
    paid = _checked_counts(release, counts)
    # Before the work of writing; `write_all` checks again when it gives the names.
    if payment is None:
        check_target(target, force=force)
        check_target(beside, force=force)
    matrix, suffix = labelled_file(release.value, release.labels), format_of(target)
    with hidden_beside(target) as hidden:
        # Written once and in parts, so that an interrupt is answered soon and leaves nothing.
        with hidden_file(hidden, target) as file:
            write_matrix(file, matrix, suffix, advance)
        with hidden.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        facts = facts_of(target.name, matrix, digest)
        evidence = None if payment is None else payment.evidence
        said = release.query if query is None else query
        known = release.about if about is None else about
        statement = _stated(
            release,
            facts,
            query=said,
            about=known,
            counts=paid,
            applied=applied,
            evidence=evidence,
        )
        # The statement first: there is never a matrix without a statement of what it guarantees.
        write_paid([(beside, statement), (target, hidden)], payment, force=force)
    return digest


def encode_release(
    release: Release,
    name: str,
    *,
    query: str | None = None,
    about: About | None = None,
    counts: Mapping[PaidCount, Release] | None = None,
    advance: Share = silent,
    payment: Payment | None = None,
) -> tuple[bytes, bytes]:
    """Return the contents of the two files that `save_release` would write under a name."""
    paid = _checked_counts(release, counts)
    content, matrix = io.BytesIO(), labelled_file(release.value, release.labels)
    write_matrix(content, matrix, format_of(name), advance)
    data = content.getvalue()
    facts = facts_of(name, matrix, hashlib.sha256(data).hexdigest())
    evidence = None if payment is None else payment.evidence
    return data, _stated(release, facts, query=query, about=about, counts=paid, evidence=evidence)


def _checked_counts(
    release: Release, counts: Mapping[PaidCount, Release] | None
) -> dict[PaidCount, CountSchema]:
    """Return the schemas of counts that the guarantee of a release pays for, too."""
    paid = {} if counts is None else dict(counts)
    check_paid(release.proof.mu, paid, release.guarantee)
    return {kind: stated_count(count) for kind, count in paid.items()}


def _stated(
    release: Release,
    facts: MatrixSchema,
    *,
    query: str | None,
    about: About | None,
    counts: dict[PaidCount, CountSchema],
    applied: tuple[StepSchema, ...] = (),
    evidence: Evidence | None = None,
) -> bytes:
    """Return the text of the statement of a release that is in memory."""
    promise = Promise(release.proof, release.guarantee, release.mechanism)
    statement = stated_release(
        promise,
        facts,
        query=query,
        about=about,
        counts=counts,
        applied=applied,
        evidence=evidence,
    )
    return encoded(stamped(statement))


def stated_release(
    promise: Promise,
    file: MatrixSchema,
    *,
    query: str | None = None,
    about: About | None = None,
    counts: dict[PaidCount, CountSchema] | None = None,
    applied: tuple[StepSchema, ...] = (),
    evidence: Evidence | None = None,
) -> ReleaseStatement:
    """Return the statement of a release."""
    proof, guarantee, mechanism = promise
    return ReleaseStatement(
        schema="matrixdp-release/2",
        mechanism=mechanism,
        guarantee=stated_guarantee(guarantee),
        in_words=str(guarantee),
        sensitivity=stated_sensitivity(proof.sensitivity),
        covariance=stated_covariance(proof.covariance),
        noise=NOISE_VERSION,
        file=file,
        floor=proof.floor,
        query=query,
        counts={} if counts is None else counts,
        applied=applied,
        payment=stated_evidence(evidence),
        about=stated_about(about),
    )


class _Promising(Protocol):
    """A statement, as far as it promises."""

    @property
    def sensitivity(self) -> SensitivitySchema: ...

    @property
    def covariance(self) -> CovarianceSchema: ...

    @property
    def floor(self) -> float | None: ...

    @property
    def guarantee(self) -> GuaranteeSchema: ...

    @property
    def mechanism(self) -> str: ...


def promise_of(statement: _Promising) -> Promise:
    """Return what a statement promises, if its noise proves it.

    Raises
    ------
    InvalidParameterError
        If it does not.
    """
    proof = NoiseProof(
        sensitivity_of(statement.sensitivity),
        covariance_of(statement.covariance),
        statement.floor,
    )
    return Promise(proof, guarantee_of(statement.guarantee), statement.mechanism)


def load_release(path: str | PathLike[str]) -> Release:
    """Read a saved release, and verify it on the way; see `Release.load`."""
    return load_stated_release(path).release


def load_stated_release(path: str | PathLike[str]) -> StatedRelease:
    """Read a saved release with what its statement says beside it, and verify all of it."""
    source = _named(path)
    statement = _statement_of(source)
    release, counts = _proven(_matrix_in(source, statement.file), statement, source)
    known = described(release, statement.query, release.labels, about_of(statement.about))
    return StatedRelease(known, statement.query, counts, statement.applied)


def verify_release(path: str | PathLike[str]) -> Guarantee:
    """Check a saved release, which may be larger than memory; see `Release.verify`."""
    return verified_statement(path)[1]


def verified_statement(path: str | PathLike[str]) -> tuple[ReleaseStatement, Guarantee]:
    """Check a saved release, even one larger than memory; return its statement and guarantee."""
    source = _named(path)
    statement = _statement_of(source)
    if format_of(source) == ".npy":
        read_layout(source)  # raises unless it is a whole array of floats
        # Mapped, not read: only the check of the numbers touches it, a few rows at a time.
        matrix = MatrixFile(map_npy(source))
    else:
        matrix = _matrix_in(source, statement.file)
    return statement, _proven(matrix, statement, source)[0].guarantee


def _matrix_in(source: Path, facts: MatrixSchema) -> MatrixFile:
    """Read the matrix of a file that is as a statement says."""
    with source.open("rb") as file:
        matrix = read_matrix(
            file, format_of(source), source.name, header=facts.header, index=facts.index
        )
    # Text does not say which type its numbers had.
    known = matrix.array.astype(facts.dtype) if format_of(source) in TEXT else matrix.array
    return replace(matrix, array=known)


def _named(path: str | PathLike[str]) -> Path:
    """Return a path that names a file."""
    named = Path(path)
    if not named.name or "\0" in str(path):
        raise InvalidParameterError(f"path={str(path)!r} does not name a file")
    return named


def _statement_of(source: Path) -> ReleaseStatement:
    """Read the statement beside a file, and check that it describes this file."""
    statement = read_statement(source, ReleaseStatement, "a saved release")
    with opened(source) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    check_digest(digest, statement.file.sha256, source)
    return statement


def _proven(
    matrix: MatrixFile, statement: ReleaseStatement, source: Path
) -> tuple[Release, dict[PaidCount, Release]]:
    """Return the release and the counts of a matrix and a statement, if these prove them."""
    check_nothing_undeclared(source, matrix)
    array, facts, beside = matrix.array, statement.file, statement_path(source).name
    if array.shape != facts.shape or array.dtype.name != facts.dtype:
        raise FileFormatError(f"{source} does not hold the matrix that its statement describes")
    try:
        promise = promise_of(statement)
        proof, guarantee, _ = promise
        # The shape of the array is the one that is stated, which was compared above.
        for part in (proof.sensitivity, proof.covariance):
            part.check_shape(facts.shape)
        release = Release.from_proof(array, *promise, matrix.labels)
        counts = {kind: count_of(count, guarantee) for kind, count in statement.counts.items()}
        check_paid(proof.mu, counts, guarantee)
        checked_stamp(statement)
        about_of(statement.about)  # raises if it is more than a few lines
    except MatrixDPError as error:
        raise FileFormatError(
            f"{beside} does not prove its guarantee, or was altered ({error})"
        ) from error
    if (statement.noise, statement.in_words) != (NOISE_VERSION, str(guarantee)):
        raise FileFormatError(
            f"{beside} was altered: noise or in_words is not what the guarantee rests on"
        )
    # Last, because it reads the whole matrix, which may be larger than memory.
    if not can_be_released(array, release.covariance, release.floor):
        raise FileFormatError(
            f"{source} holds numbers that no release with the noise of its statement can have"
        )
    return release, counts
