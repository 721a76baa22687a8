"""The spending file, which knows how many steps were spent, whatever happens to the run.

A line is added and forced to the disk *before* a step draws its lot and its noise. A process that
is killed at any moment has therefore never drawn anything that the file does not count. It may
count one step that was never released: that is the private side.

The first line says which plan the file is for. Line k after it is ``{"step": k}``, so that what
is missing at the end of a torn line is known, and anything else is recognised as not written here.
A power cut may leave zeros where the end of the last line was to be. No more than one line can be
torn, since each is on the disk before the next one is written.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from matrixdp.errors import FileFormatError, InvalidParameterError, StorageError
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.locks import locked

__all__ = ["SpendingFile"]


_FORMAT: Literal["matrixdp-spending-2"] = "matrixdp-spending-2"


class _Header(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The first line: which run of which plan this is."""

    format: Literal["matrixdp-spending-2"]
    plan: str
    mode: str
    randomness: str
    run: str


def _line(step: int) -> bytes:
    return b'{"step": %d}\n' % step


class SpendingFile:
    """How many steps of a run were spent, in a file.

    Parameters
    ----------
    path : Path
        An existing file of the same plan is continued; otherwise a new one is made.
    plan : str
        The digest of the plan.
    mode : str
        How gradients are added up, which is a part of the guarantee for all steps.
    randomness : str
        Where lots and noise come from: a file of an experiment is not continued by a release.

    Raises
    ------
    FileFormatError
        If the file is not a spending file, or was changed.
    InvalidParameterError
        If it belongs to another plan, mode or seed.
    StorageError
        If it cannot be read or written.

    Attributes
    ----------
    run : str
        The name of the run, by which its checkpoints are recognised.
    spent : int
        How many steps were spent, by this process and by those before it.
    """

    def __init__(self, path: Path, *, plan: str, mode: str, randomness: str) -> None:
        # Once and for all: in another current folder, the same name may be another run's file.
        self._path = path = path.absolute()
        wanted = (plan, mode, randomness)
        if not self._exists():
            header = _Header(_FORMAT, *wanted, secrets.token_hex(16))
            try:
                # All at once: a header is never torn, and never replaces another one.
                write_all([(path, msgspec.json.encode(header) + b"\n")])
            except InvalidParameterError:
                # Another process made the file meanwhile: as if it had been there before.
                if not self._exists():
                    raise
        with self._opened() as file:
            content = file.read()
            header, self.spent, torn = _read(content, path)
            if (header.plan, header.mode, header.randomness) != wanted:
                raise InvalidParameterError(
                    f"spending={str(path)!r} belongs to another plan, mode or seed: it is only "
                    "continued by those that it was made with; choose another file"
                )
            if torn:
                # The step was about to be drawn: it counts, and its line is completed. Nothing is
                # cut off, and only zeros are replaced, so that another kill right here loses
                # nothing either.
                written = torn.rstrip(b"\0")
                file.seek(len(content) - len(torn) + len(written))
                _write(file, _line(self.spent)[len(written) :])
            self._size = file.tell()
            file.seek(0)
            self._header = file.readline()
        self.run = header.run

    def spend(self) -> None:
        """Count one more step, durably, before it is drawn.

        Raises
        ------
        StorageError
            If that cannot be written, or if another process continues the same run. The step must
            not be drawn then.
        """
        # No size fits until the step is counted here as well: after an interruption in between,
        # this object does not know any more what the file says, and must not go on counting.
        size, self._size = self._size, -1
        with self._opened() as file:
            same = file.readline() == self._header  # not of another run, as long as this one
            if not same or file.seek(0, os.SEEK_END) != size:
                raise StorageError(
                    f"spending={str(self._path)!r} is not what this training left: another one "
                    "continues the run, or writing was interrupted. Nothing was drawn. Only one "
                    "training may continue a run; make PrivateTraining again for this one"
                )
            _write(file, _line(self.spent + 1))
            end = file.tell()
        self.spent += 1
        self._size = end

    def _exists(self) -> bool:
        with self._storage_errors():
            return self._path.exists()

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the file, alone as long as the block runs where the system has locks."""
        # Held for one step, not for the run: a notebook may make a training again while the old
        # one still exists. The size tells when the other one wrote.
        with self._storage_errors(), self._path.open("r+b") as file, locked(file):
            yield file

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"spending={str(self._path)!r} cannot be used: {error.strerror}. Nothing was drawn"
            ) from error


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _read(content: bytes, path: Path) -> tuple[_Header, int, bytes]:
    """Return the header, the number of steps, and what there is of a torn last line."""
    first, newline, rest = content.partition(b"\n")
    try:
        header = msgspec.json.decode(first, type=_Header)
    except msgspec.MsgspecError:
        newline = b""
    own = b'{"format":"%s"' % _FORMAT.encode()
    if not newline and first and (first.startswith(own) or own.startswith(first)):
        raise FileFormatError(
            f"{path} is a spending file whose first line is damaged. What was spent is not known "
            "any more; take the whole plan as spent"
        )
    if not newline and first.startswith(b'{"format":"matrixdp-spending-'):
        raise FileFormatError(
            f"{path} is a spending file of another version: the steps that it counts stay spent, "
            "so finish the run with that version, or plan anew with what is left of the budget"
        )
    if not newline:
        raise FileFormatError(f"{path} is not a spending file: choose another file")
    *whole, last = rest.split(b"\n")
    steps = len(whole)
    expected = all(line + b"\n" == _line(number) for number, line in enumerate(whole, 1))
    following = _line(steps + 1)
    torn = following.startswith(last.rstrip(b"\0")) and len(last) <= len(following)
    if not (expected and torn):
        raise FileFormatError(
            f"{path} is a spending file that was changed: its steps are not numbered from 1. "
            "What was spent is not known any more; take the whole plan as spent"
        )
    return header, steps + bool(last), last
