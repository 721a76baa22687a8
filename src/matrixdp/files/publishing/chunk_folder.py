"""A folder of chunks while it is being made, by any number of processes and machines.

The first version of a chunk stays. Whoever makes it again, after a crash or twice at once, finds it
and leaves it as it is, so no chunk is ever out in two versions. All of it happens in a hidden
folder, and only what is complete gets its name.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.files.formats.chunk_layout import ChunkIndex, ChunkLayout
from matrixdp.files.formats.opening import opened
from matrixdp.files.publishing.atomic import (
    check_new_file,
    force_folder,
    hidden_beside,
    let_others_read,
    remove,
    storage_errors,
    write_all,
)
from matrixdp.files.publishing.locks import folder_locked
from matrixdp.files.publishing.stated_payment import is_stated
from matrixdp.files.publishing.statement import statement_path
from matrixdp.interrupts import interrupts_held
from matrixdp.privacy.payment import Evidence

__all__ = ["UnfinishedFolder", "check_place"]


def check_place(target: Path) -> None:
    """Raise unless folders and links can be made beside a target; before anything is paid.

    Raises
    ------
    StorageError
        If the disk is full or read-only, or has no hard links.
    """
    with storage_errors(target), hidden_beside(target) as hidden:
        hidden.mkdir(mode=0o700)
        (hidden / "draft").touch()
        os.link(hidden / "draft", hidden / "chunk")


@dataclass(frozen=True)
class UnfinishedFolder:
    """The hidden folder beside a target in which its chunks are made.

    Parameters
    ----------
    target : Path
        What it will be.
    identity : str
        16 hexadecimal digits that follow from the key: chunks of another key are elsewhere.
    layout : ChunkLayout
        Of the matrix.
    """

    target: Path
    identity: str
    layout: ChunkLayout

    @property
    def path(self) -> Path:
        """The hidden folder, which only its owner may read."""
        return self.target.with_name(f".{self.target.name}.{self.identity}.unfinished")

    @property
    def _array(self) -> Path:
        return self.path / "array"

    @property
    def _drafts(self) -> Path:
        """Where versions of chunks are that may not be the first."""
        return self.path / "drafts"

    def make(self) -> None:
        """Make the folder, unless an earlier attempt has done it."""
        with storage_errors(self.target):
            self.path.mkdir(mode=0o700, exist_ok=True)
            for folder in ("", *self.layout.folders()):
                (self._array / folder).mkdir(exist_ok=True)
            self._drafts.mkdir(exist_ok=True)

    def digest(self, index: ChunkIndex) -> str | None:
        """Return the SHA-256 of a chunk, or None if nobody has made it yet."""
        path = self._chunk(index)
        if not path.exists():
            return None
        with opened(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def write(self, index: ChunkIndex, block: NDArray[Any]) -> str:
        """Make a chunk unless it is there, and return the SHA-256 of the one that stays.

        Raises
        ------
        StorageError
            If it cannot be written.
        """
        contents = self.layout.contents(block)
        draft = self._drafts / secrets.token_hex(16)
        with storage_errors(self.target):
            try:
                # The numbers are on the disk before the chunk has its name. Hashing takes the time
                # that the disk does.
                with draft.open("xb") as file, ThreadPoolExecutor(1) as disk:
                    file.writelines(contents)
                    file.flush()
                    forced = disk.submit(os.fsync, file.fileno())
                    digest = _digest(contents)
                    forced.result()
                # A link fails if the name is taken, where a rename would replace the first version.
                os.link(draft, self._chunk(index))
            except FileExistsError:
                known = self.digest(index)
                if known is None:  # the folder is gone: the release was published or given up
                    raise StorageError(f"{self.target} is not being made any more") from None
                return known
            finally:
                with suppress(OSError):
                    draft.unlink(missing_ok=True)
        return digest

    def publish(self, statement: bytes, evidence: Evidence | None) -> None:
        """Give the folder, whose chunks are all there, and its statement their names.

        Raises
        ------
        InvalidParameterError
            If one of the names is taken.
        StorageError
            If it fails; the target was not made.
        """
        with storage_errors(self.target):
            if self.layout.metadata_file is not None:
                described = self._array / self.layout.metadata_file
                with suppress(InvalidParameterError):  # an earlier attempt has written the same
                    write_all([(described, self.layout.metadata())])
            for folder in (*reversed(self.layout.folders()), ""):
                force_folder(self._array / folder)
            let_others_read(self._array, 0o777)
            # Alone: another release to the same name must not come between.
            with folder_locked(self.target.parent), interrupts_held(release=True):
                with suppress(OSError):  # a worker that comes too late may be writing
                    remove(self._drafts)
                self._give_names(statement, evidence)
        self.remove()

    def remove(self) -> None:
        """Remove what was made so far."""
        with suppress(OSError):
            remove(self.path)

    def _give_names(self, statement: bytes, evidence: Evidence | None) -> None:
        check_new_file(self.target)
        beside = statement_path(self.target)
        # An earlier attempt's statement may be of another day.
        again = evidence is not None and is_stated(self.target, evidence)
        # The statement first: there is never a release without a statement of its guarantee.
        write_all([(beside, statement)], force=again, release=True)
        try:
            self._array.rename(self.target)
            force_folder(self.target.parent)
        except OSError:
            if evidence is None:
                beside.unlink(missing_ok=True)
            raise

    def _chunk(self, index: ChunkIndex) -> Path:
        return self._array / self.layout.chunk_file(index)


def _digest(contents: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()
