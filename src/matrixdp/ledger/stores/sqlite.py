"""A ledger in an SQLite file, for the processes of one machine.

WAL with ``synchronous=FULL``: a transaction that has ended survives a power cut. SQLite's own wait
for a busy database is not fair, and some processes of many would never write, so writers queue for
the lock of a file beside the database.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from matrixdp.errors import InvalidParameterError, LedgerError, MatrixDPError, StorageError
from matrixdp.files.publishing.atomic import check_new_file, hidden_beside, publish
from matrixdp.files.publishing.locks import locked
from matrixdp.ledger.stores.store import Rows
from matrixdp.processes import current_process

__all__ = ["SQLiteStore"]

_BUSY_MILLISECONDS = 60_000
_ERASE_MILLISECONDS = 200
# Shared memory and locks of one machine are not seen by another one there.
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs"}
    | {"nfs4", "orangefs", "smb3", "smbfs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"}
)
_MOUNTS = Path("/proc/self/mountinfo")


class _SQLiteRows:
    """The rows within a transaction of SQLite."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement."""
        return self._connection.execute(statement, values).fetchall()


class SQLiteStore:
    """An SQLite file.

    Parameters
    ----------
    path : Path
        Of the file; ``path.lock`` beside it is the lock of the writers.

    Raises
    ------
    InvalidParameterError
        If there is no such file.
    StorageError
        If it cannot be opened, or is on a network file system, where WAL does not work.
    """

    def __init__(self, path: Path) -> None:
        self._path = path = path.absolute()
        _check_local(path.parent)
        if not path.is_file():
            raise InvalidParameterError(
                f"there is no ledger at {path}: name an existing one, or make it with "
                "Ledger.create(...) or `matrixdp ledger create`"
            )
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._process = current_process()
        _STORES.add(self)

    @property
    def address(self) -> str:
        """The file."""
        return f"sqlite:///{self._path}"

    @classmethod
    def make(cls, path: Path, fill: Callable[[Rows], None]) -> "SQLiteStore":
        """Return a new file, which only its owner may read, after its rows were filled.

        It gets its name when it is whole: a process that is killed leaves no half of a ledger.
        """
        target = path.absolute()
        check_new_file(target)
        _check_local(target.parent)
        # SQLite would take what is in it for payments of the new ledger.
        log = target.with_name(target.name + "-wal")
        if log.exists():
            raise InvalidParameterError(
                f"{log} is the rest of another ledger, whose last payments may be in it alone: "
                "bring that ledger back beside it, or choose another name"
            )
        with hidden_beside(target) as hidden, _storage_errors(target):
            os.close(os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(hidden, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                fill(_SQLiteRows(connection))
                connection.execute("COMMIT")
            publish(hidden, target)
        return cls(target)

    @contextmanager
    def write(self) -> Iterator[Rows]:
        """Yield the rows, alone; see `Store.write`."""
        with self._alone() as connection, _storage_errors(self._path):
            try:
                # Immediately, so that nothing can come between reading and writing.
                connection.execute("BEGIN IMMEDIATE")
                yield _SQLiteRows(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    _end(connection)
                raise

    @contextmanager
    def read(self) -> Iterator[Rows]:
        """Yield the rows of one moment."""
        with self._mutex, _storage_errors(self._path):
            connection = self._opened()
            try:
                connection.execute("BEGIN")
                yield _SQLiteRows(connection)
            finally:
                _end(connection)

    def erase(self) -> None:
        """Empty the write-ahead log, which keeps deleted rows otherwise.

        Another process may be reading it for long: then the next call empties it, and no writer
        waits.
        """
        with self._alone() as connection, _storage_errors(self._path):
            connection.execute(f"PRAGMA busy_timeout={_ERASE_MILLISECONDS}")
            try:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")

    def close(self) -> None:
        """Close the connection of this process."""
        with self._mutex:
            self._disconnect()

    def __del__(self) -> None:
        """Close what is open."""
        if getattr(self, "_connection", None) is not None and self._process == current_process():
            self.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection while no other process writes."""
        with self._mutex:
            connection = self._opened()
            with _storage_errors(self._path):
                queue = self._path.with_name(self._path.name + ".lock").open("ab")
            with queue, locked(queue):
                yield connection

    def before_fork(self) -> None:
        """Close the connection, and let no thread make another one before the fork is done.

        SQLite would not know in the child that the locks of its files are the parent's, and either
        process could take the write-ahead log away that the other one writes to.
        """
        self._mutex.acquire()
        self._disconnect()

    def after_fork(self) -> None:
        """Let threads make connections again, in the parent and in the child."""
        self._process = current_process()
        self._mutex.release()

    def _opened(self) -> sqlite3.Connection:
        if self._process != current_process():
            raise StorageError(
                f"the ledger {self._path} was open when this process was forked by code that "
                "Python does not know of. Nothing was paid. Open it in the child only"
            )
        file = _identity(self._path)
        if self._connection is not None and file != self._file:
            # What is written to a file without a name is lost.
            raise LedgerError(
                f"the ledger {self._path} was replaced by another file while it was open. Nothing "
                "was paid. Close it everywhere, remove what is left of its -wal and -shm files, "
                "and only then put a file in its place"
            )
        if self._connection is not None:
            _end(self._connection)  # what an interrupt came too early for
        else:
            with _storage_errors(self._path):
                # Not made if it is gone: an empty ledger in its place would have spent nothing.
                connection = sqlite3.connect(
                    f"{self._path.as_uri()}?mode=rw",
                    uri=True,
                    timeout=_BUSY_MILLISECONDS / 1000,
                    isolation_level=None,
                    check_same_thread=False,  # one thread at a time: the mutex
                )
                try:
                    _configure(connection, self._path)
                except BaseException:
                    connection.close()
                    raise
            self._connection, self._file = connection, file
        return self._connection


_STORES: WeakSet[SQLiteStore] = WeakSet()
# Those that wait for the end of a fork.
_WAITING: list[SQLiteStore] = []


def _before_fork() -> None:
    for store in list(_STORES):
        store.before_fork()
        _WAITING.append(store)


def _after_fork() -> None:
    while _WAITING:
        _WAITING.pop().after_fork()


if hasattr(os, "register_at_fork"):  # systems without fork do not have it
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system into one that says that nothing was written."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, MatrixDPError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise StorageError(
            f"the ledger {path} cannot be used: {reason}. Nothing was written to it"
        ) from error


def _identity(path: Path) -> tuple[int, int]:
    """Return what a file keeps when its name goes to another one."""
    with _storage_errors(path):
        status = path.stat()
    return status.st_dev, status.st_ino


def _end(connection: sqlite3.Connection) -> None:
    """Roll a transaction back, unless that is done: a full disk may have done it."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise StorageError(
            f"the ledger {path} cannot keep a write-ahead log (its journal is {mode!r}): move it "
            "to a disk of this machine"
        )
    # Anything less loses payments in a power cut.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA secure_delete=ON")
    connection.execute("PRAGMA foreign_keys=ON")


def _check_local(folder: Path) -> None:
    """Raise if a folder is on a network file system, as far as the system tells."""
    if not _MOUNTS.exists():
        return
    kind = _file_system(folder.resolve(), _MOUNTS.read_text(encoding="utf-8"))
    if kind in _NETWORK:
        raise StorageError(
            f"{folder} is on a network file system ({kind}), where SQLite loses payments: keep the "
            "ledger on a disk of this machine, or use a PostgreSQL server"
        )


def _file_system(folder: Path, mounts: str) -> str:
    r"""Return the kind of the file system of a folder, given the text of ``mountinfo``.

    Examples
    --------
    >>> text = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /data rw - nfs4 host:/x rw\n"
    >>> _file_system(Path("/data/study"), text), _file_system(Path("/database"), text)
    ('nfs4', 'ext4')
    """
    longest, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        # Blanks in names are written as octal numbers.
        name = before.split(" ")[4].encode().decode("unicode_escape")
        mounted = Path(name)
        # The last of two mounts on one folder hides the first.
        if folder.is_relative_to(mounted) and len(mounted.parts) >= longest:
            longest, found = len(mounted.parts), after.split(" ")[0]
    return found
