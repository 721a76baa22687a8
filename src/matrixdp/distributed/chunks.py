"""The tasks of workers: one chunk is checked and tagged, or gets its noise and is written."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from matrixdp.distributed.keys import SealedSecret
from matrixdp.distributed.running import answered
from matrixdp.errors import ShapeError, StorageError
from matrixdp.files.formats.chunk_layout import ChunkIndex, ChunkLayout
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise.keys.parts import secret_of_part
from matrixdp.noise.keys.value_tag import ValueTag

__all__ = ["ChunkTags", "ChunkWrites", "PaidChunks", "chunk_answers", "chunk_origin"]


@dataclass(frozen=True)
class ChunkTags:
    """Checks chunks and returns their codes, each of which has a key of its own.

    Attributes
    ----------
    noise : BlockNoise
        Of the release.
    layout : ChunkLayout
        Of the matrix.
    secret : SealedSecret
        For the codes, and for nothing else.
    draft : bytes
        The statement that the codes are tied to.
    """

    noise: BlockNoise
    layout: ChunkLayout
    secret: SealedSecret
    draft: bytes

    def __call__(self, block: object, index: ChunkIndex) -> bytes:
        """Return the code of a chunk, if it may be released."""
        array = self.noise.check(block, chunk_origin(self.layout, block, index))
        secret = secret_of_part(self.secret.opened(), f"chunk {index[0]} {index[1]}")
        code = ValueTag(secret, self.noise.context, self.draft).update(array).digest()
        # Codes of two values, of two attempts, would tell something. What follows from them does
        # not: it is random to whoever does not know the secret.
        return secret_of_part(secret, f"code {code.hex()}")


@dataclass(frozen=True, repr=False)
class PaidChunks:
    """The values that chunks had when they were paid for.

    Attributes
    ----------
    tags : ChunkTags
        What makes their codes.
    codes : dict
        Those codes, by the index of the chunk.
    """

    tags: ChunkTags
    codes: dict[ChunkIndex, bytes]

    def check(self, block: object, index: ChunkIndex) -> None:
        """Raise if a chunk has another value.

        Raises
        ------
        StorageError
            If it has; the message quotes nothing of it.
        """
        if self.tags(block, index) != self.codes[index]:
            raise StorageError(
                "a chunk of the matrix has another value than when it was paid for: with the same "
                "noise, two values would show their difference. Persist the array that is released"
            )


@dataclass(frozen=True)
class ChunkWrites:
    """Writes chunks with their noise, unless they are there, and returns their digests.

    Attributes
    ----------
    noise : BlockNoise
        Of the release.
    folder : UnfinishedFolder
        Where they go.
    secret : SealedSecret
        Of the release key.
    paid : PaidChunks, optional
        What chunks must be, if the key outlives this attempt: another one draws with it, too, and
        not always where this one has left its chunks.
    """

    noise: BlockNoise
    folder: UnfinishedFolder
    secret: SealedSecret
    paid: PaidChunks | None = None

    def __call__(self, block: object, index: ChunkIndex) -> str:
        """Return the SHA-256 of the chunk that stays."""
        known = self.folder.digest(index)
        if known is not None:
            return known
        if self.paid is not None:
            self.paid.check(block, index)
        origin = chunk_origin(self.folder.layout, block, index)
        noisy = self.noise.noisy(block, origin, self.secret.opened())
        return self.folder.write(index, noisy)


def chunk_answers(array: da.Array, work: ChunkTags | ChunkWrites) -> da.Array:
    """Return an array of the answers of a task for each chunk of a matrix."""
    # Names say nothing: they are shown on dashboards.
    name = f"matrixdp-{secrets.token_hex(8)}"
    # One copy of the work for each worker, however many chunks there are.
    shared = delayed(work, name=f"{name}-work", pure=False, traverse=False)
    return da.map_blocks(
        _answer,
        array,
        shared,
        name=name,
        dtype=object,
        chunks=tuple((1,) * blocks for blocks in array.numblocks),
        meta=np.empty((0, 0), dtype=object),
    )


def _answer(
    block: object, work: Callable[[object, ChunkIndex], Any], block_id: ChunkIndex
) -> NDArray[Any]:
    answer = np.empty((1, 1), dtype=object)
    answer[0, 0] = answered(lambda: work(block, block_id))
    return answer


def chunk_origin(layout: ChunkLayout, block: object, index: ChunkIndex) -> ChunkIndex:
    """Return where a chunk begins; raise if a block is not of the shape that it was said to be."""
    rows, columns = layout.slices(index)
    shape = layout.shape_of(index)
    if getattr(block, "shape", None) != shape:
        raise ShapeError(
            f"matrix has a block whose shape is not {shape}, as the array says: compute its chunk "
            "sizes"
        )
    return (rows.start, columns.start)
