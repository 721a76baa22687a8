"""Releases of Dask arrays that are computed when they are needed, as often as they are.

Every chunk is tied to its value by a code, which whoever computes it first leaves in a folder. A
chunk that is computed again gets its noise only if its value has that code: the noise of an element
is never added to two values.
"""

import atexit
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from matrixdp.distributed.chunks import chunk_origin
from matrixdp.distributed.keys import SealedSecret, check_workers, memory_folder
from matrixdp.distributed.release import check_values, checked_layout
from matrixdp.distributed.running import client_in_use
from matrixdp.errors import InvalidParameterError, KeyStateError, StorageError
from matrixdp.files.formats.chunk_layout import ChunkIndex, ChunkLayout
from matrixdp.files.formats.zarr_folder import ZarrLayout
from matrixdp.ledger.key_file import KeyFile
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.mechanisms.release import Release
from matrixdp.noise import NoiseStream, ReleaseKey
from matrixdp.noise.keys.parts import secret_of_part
from matrixdp.noise.keys.release_key import checked_key
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.payment import Payer, check_payer
from matrixdp.processes import current_process

__all__ = ["release_lazily"]


def release_lazily(
    mechanism: GaussianMechanism,
    array: Any,
    *,
    privacy_filter: Payer | None = None,
    key: ReleaseKey | None = None,
    check: bool = True,
    folder: str | PathLike[str] | None = None,
) -> Release:
    """Return a release whose value is a Dask array that nothing has computed yet.

    It may be computed any number of times, sliced, rechunked and saved, with the same bits. It is
    paid for at once. The values must repeat: a chunk that is computed again and has another value
    raises KeyStateError. For a source that may change use `release_to`, which writes chunks once.

    Parameters
    ----------
    mechanism : IMGM or another Gaussian mechanism
        With independent noise.
    array : dask array
        As in `release_to`.
    privacy_filter : PrivacyFilter or LedgerAccount, optional
        Pays for the release, after all checks and before anything is drawn.
    key : ReleaseKey, optional
        As in ``IMGM.release``.
    check : bool, optional
        Whether all values are computed once before anything is paid, to see whether they may be
        released. Without that, computing a chunk with a number that may not be released raises.
    folder : path, optional
        A folder of yours alone that all workers read and write under this name: it holds the key
        file that opens the sealed key, and the codes of chunks. The array can be computed as long
        as it is there. By default one on this machine, which goes when this process ends.

    Raises
    ------
    InvalidParameterError, ShapeError
        Before anything is drawn or paid.
    BudgetExceededError
        If the filter does not hold enough; nothing is drawn and the key is not spent.

    Examples
    --------
    >>> import dask.array as da
    >>> from matrixdp import IMGM, Budget, FrobeniusBall
    >>> mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5))
    >>> noisy = release_lazily(mechanism, da.ones((40, 6), chunks=(10, 6))).value
    >>> bool((noisy.compute() == noisy.rechunk((40, 2)).compute()).all())
    True
    """
    layout = checked_layout(array, ZarrLayout)
    noise = BlockNoise(mechanism.proof, layout.shape, layout.dtype)
    if not noise.in_parts:
        raise InvalidParameterError(
            f"{type(mechanism.covariance).__name__} noise for a "
            f"{type(mechanism.sensitivity).__name__} is drawn at once: use release_to('out.zarr', "
            "matrix.rechunk(matrix.shape))"
        )
    check_payer(privacy_filter)
    fresh = ReleaseKey.generate() if key is None else checked_key(key)
    place = _own_folder() if folder is None else _made(Path(folder).absolute())
    keys = KeyFile.opened_or_made(place / "keys")
    check_workers(client_in_use(), keys)
    if check:
        check_values(array, noise, layout, keys, lambda _: None)
    # Of this release alone: another one has other codes.
    codes = place / secrets.token_hex(16)
    codes.mkdir(mode=0o700)
    pay = None if privacy_filter is None else partial(privacy_filter.spend, mechanism)
    try:
        with fresh.bind(noise.context, pay=pay) as stream:
            sealed = SealedSecret.of(stream.export_secret(), noise.context.digest(), keys)
    except BaseException:
        codes.rmdir()
        raise
    value = _noisy_array(array, _NoisyChunks(noise, layout, sealed, codes))
    return Release.from_proof(value, mechanism.proof, mechanism.guarantee, type(mechanism).__name__)


@dataclass(frozen=True)
class _NoisyChunks:
    """Gives chunks their noise, each for one value."""

    noise: BlockNoise
    layout: ChunkLayout
    secret: SealedSecret
    codes: Path

    def __call__(self, block: object, index: ChunkIndex) -> NDArray[Any]:
        """Return a chunk with its noise.

        Raises
        ------
        KeyStateError
            If it had another value before.
        """
        origin = chunk_origin(self.layout, block, index)
        array = self.noise.check(block, origin)
        secret, name = self.secret.opened(), f"{index[0]}-{index[1]}"
        own = secret_of_part(secret, f"chunk {name}")
        self._claim(name, ValueTag(own, self.noise.context, b"").update(array).digest())
        with NoiseStream.from_secret(secret, self.noise.context) as stream:
            return self.noise.noisy_by(stream, array, origin)

    def _claim(self, name: str, code: bytes) -> None:
        """Leave the code of a chunk, or raise if another one is there: the first one stays."""
        draft, kept = self.codes / secrets.token_hex(16), self.codes / name
        try:
            if not kept.exists():
                with draft.open("xb") as file:
                    file.write(code)
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):  # somebody else was faster
                    os.link(draft, kept)
                draft.unlink()
            known = kept.read_bytes()
        except OSError as error:
            raise StorageError(
                f"{self.codes} does not hold the codes of this release any more "
                f"({type(error).__name__}): its chunks cannot be computed without it"
            ) from None
        if known != code:
            raise KeyStateError(
                "a chunk was computed before with another value, which has the noise of this "
                "release already: two values would show their difference. Persist the array that "
                "is released, or use release_to, which writes every chunk once"
            )


def _noisy_array(array: da.Array, work: _NoisyChunks) -> da.Array:
    name = f"matrixdp-{secrets.token_hex(8)}"
    shared = delayed(work, name=f"{name}-work", pure=False, traverse=False)
    return da.map_blocks(
        _noisy_chunk,
        array,
        shared,
        name=name,
        dtype=array.dtype,
        meta=np.empty((0, 0), array.dtype),
    )


def _noisy_chunk(block: object, work: _NoisyChunks, block_id: ChunkIndex) -> NDArray[Any]:
    return work(block, block_id)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InvalidParameterError(
            f"folder={str(folder)!r} cannot be made ({error.strerror}): name one for the key file "
            "and the codes of chunks"
        ) from error
    if folder.stat().st_mode & 0o077:
        raise InvalidParameterError(
            f"folder={str(folder)!r} is open to others, who could read the key: chmod 700 it"
        )
    return folder


@lru_cache(maxsize=1)
def _own_folder() -> Path:
    """Return a folder on this machine that goes when this process ends."""
    folder, process = Path(tempfile.mkdtemp(dir=memory_folder())), current_process()

    def remove() -> None:
        if current_process() == process:  # not when a forked child ends
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
