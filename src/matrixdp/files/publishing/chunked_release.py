"""Releases in folders of chunks: their statement, and the proof of one, chunk by chunk.

No check needs more than one chunk at a time, so any number of threads or machines can share them.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matrixdp.covariance import Covariance, Diagonal, Isotropic
from matrixdp.errors import FileFormatError, MatrixDPError
from matrixdp.files.formats.chunk_folders import read_layout_of
from matrixdp.files.formats.chunk_layout import (
    ChunkIndex,
    ChunkLayout,
    Mapper,
    by_threads,
    root_digest,
)
from matrixdp.files.formats.opening import opened
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.files.publishing.releases import promise_of
from matrixdp.files.publishing.statement import check_digest, read_statement, statement_path
from matrixdp.files.schemas.about import (
    AboutSchema,
    about_of,
    checked_stamp,
    stated_about,
)
from matrixdp.files.schemas.values import (
    CovarianceSchema,
    DigestSchema,
    EvidenceSchema,
    GuaranteeSchema,
    MechanismName,
    Schema,
    SensitivitySchema,
    stated_covariance,
    stated_evidence,
    stated_guarantee,
    stated_sensitivity,
)
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import Promise
from matrixdp.noise import NOISE_VERSION
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Evidence

__all__ = [
    "CHUNKED_SCHEMA",
    "ChunkedStatement",
    "stated_chunks",
    "verified_chunks",
]

CHUNKED_SCHEMA = "matrixdp-chunked-release/"
"""What the schema of such a statement begins with."""


class _ChunksSchema(DigestSchema, frozen=True):
    """The folder of a matrix; its ``sha256`` is that of its metadata and of its chunks."""

    shape: tuple[int, int]
    dtype: Literal["float64", "float32"]
    chunks: tuple[int, int]
    chunk_sha256: list[str]  # row by row


class ChunkedStatement(Schema, frozen=True, omit_defaults=True):
    """The statement of a release in a folder; its fields are those of other releases."""

    schema: Literal["matrixdp-chunked-release/1"]
    mechanism: MechanismName
    guarantee: GuaranteeSchema
    in_words: str
    sensitivity: SensitivitySchema
    covariance: CovarianceSchema
    noise: str
    file: _ChunksSchema
    floor: float | None = None
    payment: EvidenceSchema | None = None
    about: AboutSchema | None = None
    date: str | None = None
    version: str | None = None


def stated_chunks(
    promise: Promise,
    name: str,
    layout: ChunkLayout,
    digests: Sequence[str] = (),
    *,
    about: About | None = None,
    evidence: Evidence | None = None,
) -> ChunkedStatement:
    """Return the statement of a folder of a name; without digests it is a draft."""
    proof, guarantee, mechanism = promise
    facts = _ChunksSchema(
        name=name,
        sha256=root_digest(layout.metadata(), digests) if digests else "",
        shape=layout.shape,
        dtype="float32" if layout.dtype == "float32" else "float64",
        chunks=layout.chunks,
        chunk_sha256=list(digests),
    )
    return ChunkedStatement(
        schema="matrixdp-chunked-release/1",
        mechanism=mechanism,
        guarantee=stated_guarantee(guarantee),
        in_words=str(guarantee),
        sensitivity=stated_sensitivity(proof.sensitivity),
        covariance=stated_covariance(proof.covariance),
        noise=NOISE_VERSION,
        file=facts,
        floor=proof.floor,
        payment=stated_evidence(evidence),
        about=stated_about(about),
    )


def verified_chunks(
    folder: Path, *, mapper: Mapper = by_threads, advance: Callable[[int], None] | None = None
) -> tuple[ChunkedStatement, Guarantee]:
    """Return the statement beside a folder and its guarantee, once both have proven it.

    Parameters
    ----------
    folder : Path
        The release.
    mapper : callable, optional
        Who checks the chunks; by default threads of this process.
    advance : callable, optional
        Called with the number of chunks checked since the last call.

    Raises
    ------
    FileFormatError
        If it proves nothing: a chunk is missing, altered, or such as this noise cannot leave
        behind; or the folder holds anything that is not declared.

    Notes
    -----
    Every chunk is checked for coarse numbers by itself, so one without noise is noticed among
    others. Each is refused by mistake with a chance below ``2**-40``.
    """
    statement = read_statement(folder, ChunkedStatement, "a release in a folder")
    facts, beside = statement.file, statement_path(folder).name
    layout = read_layout_of(folder)
    if (layout.shape, layout.dtype, layout.chunks) != (facts.shape, facts.dtype, facts.chunks):
        raise FileFormatError(f"{folder} does not hold the matrix that its statement describes")
    layout.check_names(folder)
    try:
        promise = promise_of(statement)
        for part in (promise.sensitivity, promise.covariance):
            part.check_shape(layout.shape)
        promise.proof.check_claim(promise.guarantee)
        checked_stamp(statement)
        about_of(statement.about)  # raises if it is more than a few lines
        root = root_digest(layout.metadata(), facts.chunk_sha256)
    except (MatrixDPError, ValueError) as error:
        raise FileFormatError(
            f"{beside} does not prove its guarantee, or was altered ({error})"
        ) from error
    if (statement.noise, statement.in_words) != (NOISE_VERSION, str(promise.guarantee)):
        raise FileFormatError(
            f"{beside} was altered: noise or in_words is not what the guarantee rests on"
        )
    check_digest(root, facts.sha256, folder)
    proven = _ChunkProof(folder.absolute(), layout, promise.covariance, promise.proof.floor)
    for reason in mapper(proven, _chunks_of(folder, layout, promise, facts.chunk_sha256)):
        if reason is not None:
            raise FileFormatError(reason)
        if advance is not None:
            advance(1)
    return statement, promise.guarantee


def _chunks_of(
    folder: Path, layout: ChunkLayout, promise: Promise, digests: Sequence[str]
) -> list[tuple[ChunkIndex, str]]:
    """Return the index and the stated digest of every chunk, if there are as many of both."""
    indices = list(layout.indices())
    if len(indices) != len(digests):
        raise FileFormatError(f"{folder} has {len(indices)} chunks, and {len(digests)} are stated")
    if not isinstance(promise.covariance, Isotropic | Diagonal) and len(indices) > 1:
        raise FileFormatError(
            f"{folder} has {len(indices)} chunks, and its noise can only be drawn for one"
        )
    return list(zip(indices, digests, strict=True))


@dataclass(frozen=True)
class _ChunkProof:
    """Proves one chunk after another, wherever it is called."""

    folder: Path
    layout: ChunkLayout
    covariance: Covariance
    floor: float | None

    def __call__(self, stated: tuple[ChunkIndex, str]) -> str | None:
        """Return why a chunk with a digest is not proven, or None if it is."""
        index, digest = stated
        path = self.folder / self.layout.chunk_file(index)
        try:
            with opened(path) as file:
                content = file.read()
        except (MatrixDPError, OSError) as error:
            return f"{path} cannot be read ({type(error).__name__})"
        if hashlib.sha256(content).hexdigest() != digest:
            return f"{path} is not the chunk that its statement describes: its digest differs"
        numbers = self.layout.numbers(content, index)
        if numbers is None:
            return f"{path} holds more than the numbers of its chunk, or fewer"
        part = _part_of(self.covariance, self.layout, index)
        if not can_be_released(numbers, part, self.floor):
            return f"{path} holds numbers that no release with the noise of its statement can have"
        return None


def _part_of(covariance: Covariance, layout: ChunkLayout, index: ChunkIndex) -> Covariance:
    """Return the covariance of the noise in one chunk; other kinds have one chunk only."""
    if not isinstance(covariance, Diagonal) or layout.grid == (1, 1):
        return covariance
    scales, part = covariance.scales, layout.slices(index)
    return Diagonal(
        scales[tuple(slice(None) if n == 1 else s for n, s in zip(scales.shape, part, strict=True))]
    )
