"""The release of a Dask array: checked, paid for once, and written chunk by chunk."""

import secrets
from dataclasses import dataclass, field
from math import isnan
from os import PathLike
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np

from matrixdp.distributed.chunks import ChunkTags, ChunkWrites, PaidChunks, chunk_answers
from matrixdp.distributed.folders import read_folder
from matrixdp.distributed.keys import SealedSecret, check_workers, key_file_for
from matrixdp.distributed.running import Advance, Refusal, client_in_use, run_chunks
from matrixdp.errors import InvalidParameterError, ShapeError, StorageError
from matrixdp.files.formats.arrow_format import arrow_module
from matrixdp.files.formats.chunk_folders import layout_kind
from matrixdp.files.formats.chunk_layout import ChunkLayout
from matrixdp.files.formats.stacked_folder import ParquetFolder, RowsFolder
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder, check_place
from matrixdp.files.publishing.chunked_release import ChunkedStatement, stated_chunks
from matrixdp.files.publishing.paid import (
    ChangedValueError,
    Publication,
    checked_request,
    publish_paid,
)
from matrixdp.files.publishing.releases import promise_of
from matrixdp.files.publishing.statement import decoded, encoded, statement_path
from matrixdp.files.schemas.about import about_of, stamped
from matrixdp.ledger.key_file import KeyFile
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import Promise
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.mechanisms.release import Release
from matrixdp.noise.keys.parts import secret_of_part
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.payment import Payer, Payment

__all__ = ["check_values", "checked_layout", "finish_drafted", "release_to"]


def _silent(_chunks: int) -> None:
    """Report nothing."""


def release_to(
    mechanism: GaussianMechanism,
    path: str | PathLike[str],
    array: Any,
    *,
    privacy_filter: Payer | None = None,
    request: str | None = None,
    about: About | None = None,
    check: bool = True,
    keys: str | PathLike[str] | None = None,
    advance: Advance = _silent,
) -> Release:
    """Release a Dask array of any size into a folder of chunks, and its statement.

    Every chunk is computed, gets its noise and is written where it is, once: the first version of a
    chunk stays, whoever makes it again. So rechunked arrays, retries and workers that die change no
    bit, and a source that does not repeat its values is released once all the same. With a ledger,
    whose key outlives an attempt, a chunk must have the value that it was paid for.

    Parameters
    ----------
    mechanism : IMGM or another Gaussian mechanism
        Noise that is not independent, and symmetric matrices, need an array of one chunk.
    path : path
        Ending in ``.zarr``, ``.npy`` or ``.parquet``: a new folder, on a disk that all workers
        share. In the last two of these every chunk is a file with whole rows.
    array : dask array
        float64 or float32, two axes, in chunks of one shape but for the last ones.
    privacy_filter : PrivacyFilter or LedgerAccount, optional
        Pays for the release, after all checks and before anything is drawn. With an account of a
        ledger a crash loses nothing: call this again with the same request, or ``Ledger.finish``.
        With a filter a crash forfeits the release.
    request : str, optional
        A name for this release, as in ``IMGM.release_to``.
    about : About, optional
        What the statement says for people.
    check : bool, optional
        Whether all values are computed once before anything is paid, to see whether they may be
        released. Without that a number that may not be released, is noticed after paying, and what
        was paid is lost. A ledger makes that pass in any case, because it ties a key to its value.
    keys : path, optional
        A key file that client and workers read under this name, made if there is none; it opens
        what is sealed in the graph. By default a file for this machine alone.
    advance : callable, optional
        Called with the number of chunks checked or written since the last call.

    Returns
    -------
    Release
        Its value is a Dask array, read from the folder.

    Raises
    ------
    InvalidParameterError, ShapeError
        Before anything is drawn or paid.
    BudgetExceededError
        If the budget does not hold enough; nothing is drawn.
    StorageError
        If a chunk cannot be computed or written. What was paid stays paid.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import dask.array as da
    >>> from matrixdp import IMGM, Budget, FrobeniusBall
    >>> mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5))
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/out.zarr"
    ...     release = release_to(mechanism, path, da.ones((40, 6), chunks=(10, 6)))
    ...     release.value.compute().shape, Release.verify(path) == mechanism.guarantee
    ((40, 6), True)
    """
    promise = Promise(mechanism.proof, mechanism.guarantee, type(mechanism).__name__)
    release_promised(
        promise,
        Path(path).absolute(),
        array,
        privacy_filter=privacy_filter,
        request=request,
        about=about,
        check=check,
        keys=keys,
        advance=advance,
    )
    return Release.from_proof(read_folder(path), *promise)


def finish_drafted(draft: bytes, value: Any, target: Path, *, payer: Payer, request: str) -> None:
    """Draw and publish what a ledger has paid for, from the same array or folder of zarr."""
    statement = decoded(draft, ChunkedStatement, "the draft of a release")
    array = read_folder(value) if isinstance(value, str | PathLike) else value
    if isinstance(array, da.Array) and array.shape == statement.file.shape:
        array = array.rechunk(statement.file.chunks)
    release_promised(
        promise_of(statement),
        target,
        array,
        privacy_filter=payer,
        request=request,
        about=about_of(statement.about),
    )


def release_promised(
    promise: Promise,
    target: Path,
    array: Any,
    *,
    privacy_filter: Payer | None,
    request: str | None,
    about: About | None = None,
    check: bool = True,
    keys: str | PathLike[str] | None = None,
    advance: Advance = _silent,
) -> None:
    """Release an array with the noise of a promise; see `release_to`."""
    kind = layout_kind(target)
    promise.proof.check_claim(promise.guarantee)
    layout = checked_layout(array, kind)
    noise = BlockNoise(promise.proof, layout.shape, layout.dtype)
    if not noise.in_parts and layout.grid != (1, 1):
        raise InvalidParameterError(
            f"matrix has {layout.grid[0]} x {layout.grid[1]} chunks, and "
            f"{type(promise.covariance).__name__} noise for a {type(promise.sensitivity).__name__} "
            "is drawn at once: call rechunk(matrix.shape) if it fits one worker"
        )
    made = [target, statement_path(target)]
    name = checked_request(privacy_filter, request, made, force=False)
    check_place(target)
    with key_file_for(None if keys is None else Path(keys)) as sealing:
        check_workers(client_in_use(), sealing)
        job = _Job(promise, target, array, noise, layout, about, sealing, advance)
        publication = Publication(
            cost=promise,
            target=target,
            draft=job.draft,
            tag=job.tag,
            about={"shape": f"{layout.shape[0]} x {layout.shape[1]}"},
            write=job.write,
        )
        # The values are checked in the pass that tags them. The secret of an earlier attempt needs
        # a pass of its own, which the ledger asks for.
        if check and (privacy_filter is None or not privacy_filter.resumes(name)):
            job.tag(publication.secret)
        publish_paid(privacy_filter, name, publication)


def check_values(
    array: da.Array, noise: BlockNoise, layout: ChunkLayout, keys: KeyFile, advance: Advance
) -> None:
    """Compute an array once, and raise unless all of its values may be released."""
    secret = SealedSecret.of(secrets.token_bytes(32), b"check", keys)
    _answers(array, ChunkTags(noise, layout, secret, b""), InvalidParameterError, advance)


def checked_layout(array: Any, kind: type[ChunkLayout]) -> ChunkLayout:
    """Return the layout of a Dask array that can be released, or raise with the reason.

    Raises
    ------
    InvalidParameterError, ShapeError
        If it is not one of floats, with two axes and equal chunks of known size.
    """
    if not isinstance(array, da.Array):
        raise InvalidParameterError(
            f"matrix is a {type(array).__name__}: a folder of chunks is made of an array of Dask; "
            "dask.array.from_array makes one"
        )
    if array.ndim != 2:
        raise ShapeError(f"matrix has {array.ndim} axes: it must have two")
    if array.dtype not in (np.dtype("float64"), np.dtype("float32")):
        raise InvalidParameterError(
            f"matrix has dtype {array.dtype}: cast it by matrix.astype('float64')"
        )
    if any(isnan(length) for axis in array.chunks for length in axis):
        raise ShapeError(
            "matrix has chunks of unknown size, on which its noise depends: call "
            "matrix.compute_chunk_sizes()"
        )
    if array.size == 0:
        raise ShapeError(f"matrix has shape {array.shape}: it must not be empty")
    if any(len({*axis[:-1]}) > 1 or axis[-1] > axis[0] for axis in array.chunks):
        raise ShapeError(
            "matrix has chunks of several shapes, and a release has one: call "
            f"matrix.rechunk({tuple(max(axis) for axis in array.chunks)})"
        )
    rows, columns = array.chunks
    if issubclass(kind, ParquetFolder):
        arrow_module()  # workers would notice after paying that it is not installed
    if issubclass(kind, RowsFolder) and len(columns) > 1:
        raise ShapeError(
            f"matrix has {len(columns)} chunks beside each other, and a {kind.suffix} file has "
            "whole rows: call matrix.rechunk({1: -1}), or release into a folder .zarr"
        )
    return kind(array.shape, array.dtype.name, (rows[0], columns[0]))


@dataclass(frozen=True, eq=False, repr=False)  # it holds secrets
class _Job:
    """One release on its way: what its publication calls."""

    promise: Promise
    target: Path
    array: da.Array
    noise: BlockNoise
    layout: ChunkLayout
    about: About | None
    keys: KeyFile
    advance: Advance
    tags: dict[bytes, bytes] = field(default_factory=dict)
    chunks: dict[bytes, PaidChunks] = field(default_factory=dict)

    @property
    def draft(self) -> bytes:
        """The statement without its digests, which is the same on every day."""
        return encoded(stated_chunks(self.promise, self.target.name, self.layout, about=self.about))

    def tag(self, secret: bytes) -> bytes:
        """Return the code of the array, which is computed and checked once for each secret."""
        if secret not in self.tags:
            context, draft = self.noise.context, self.draft
            own = self._sealed(secret_of_part(secret, "tags"), b"tags")
            work = ChunkTags(self.noise, self.layout, own, draft)
            codes = _answers(self.array, work, InvalidParameterError, self.advance)
            self.chunks[secret] = PaidChunks(
                work, dict(zip(self.layout.indices(), codes, strict=True))
            )
            together = np.frombuffer(b"".join(codes), dtype=np.uint8)
            self.tags[secret] = ValueTag(secret, context, draft).update(together).digest()
        return self.tags[secret]

    def write(self, payment: Payment) -> str:
        """Draw and publish; what an earlier attempt has drawn stays."""
        # The name follows from the key: what was drawn with another one is somewhere else.
        identity = secret_of_part(payment.secret, "folder")[:8].hex()
        folder = UnfinishedFolder(self.target, identity, self.layout)
        lasting = payment.evidence is not None
        # A key that lasts may serve several attempts, all of which must be at one value.
        paid = self.chunks[payment.secret] if lasting else None
        work = ChunkWrites(self.noise, folder, self._sealed(payment.secret, b"noise"), paid)
        try:
            folder.make()
            digests = _answers(self.array, work, ChangedValueError, self.advance)
            statement = stated_chunks(
                self.promise,
                self.target.name,
                self.layout,
                digests,
                about=self.about,
                evidence=payment.evidence,
            )
            folder.publish(encoded(stamped(statement)), payment.evidence)
        except ChangedValueError:
            folder.remove()
            raise
        except BaseException:
            if not lasting:  # nobody can finish it
                folder.remove()
            raise
        return statement.file.sha256

    def _sealed(self, secret: bytes, purpose: bytes) -> SealedSecret:
        return SealedSecret.of(secret, purpose + self.noise.context.digest(), self.keys)


def _answers(
    array: da.Array,
    work: ChunkTags | ChunkWrites,
    refused: type[InvalidParameterError | StorageError],
    advance: Advance,
) -> list[Any]:
    """Return the answers for all chunks, row by row, or raise for the first refusal."""
    answers = run_chunks(chunk_answers(array, work), advance)
    for answer in answers.values():
        if isinstance(answer, Refusal):
            raise (refused if answer.of_value else StorageError)(answer.message)
    rows, columns = array.numblocks
    return [answers[row, column] for row in range(rows) for column in range(columns)]
