"""Ledgers: budgets in a database, which survive crashes, processes and machines."""

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from matrixdp.errors import InvalidParameterError, LedgerError, MissingExtraError
from matrixdp.ledger.account import LedgerAccount
from matrixdp.ledger.balances import Balance, account_limit, balances, open_account, path_to
from matrixdp.ledger.chain import Entry, entries, first_digest
from matrixdp.ledger.finishing import finish, give_up
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.payments import Pending, pending_releases
from matrixdp.ledger.schema import Head, check_version, head, make_tables
from matrixdp.ledger.stores.sqlite import SQLiteStore
from matrixdp.ledger.stores.store import LostConnectionError, Rows, Store
from matrixdp.ledger.terms import Terms, checked_name
from matrixdp.ledger.witness import HighWaterMark, Mark
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.guarantee import Neighbouring

__all__ = ["Ledger"]

T = TypeVar("T")

_SQLITE = "sqlite:///"
_POSTGRESQL = ("postgresql+psycopg://", "postgresql://")
# A connection that breaks is made again: after so many seconds each.
_PAUSES = (0.1, 0.5, 2.0, 5.0)


class Ledger:
    """Accounts that outlive the programs which spend them.

    Accounts form a tree by their names: ``"clinic/ann"`` is below ``"clinic"``. A payment debits an
    account and all above it, or none, before anything is drawn. What was paid for a file and not
    written can be finished with the same bits; nothing is ever refunded.

    Parameters
    ----------
    store : Store
        The database; see `Ledger.create` and `Ledger.open`.
    keys : KeyFile, optional
        Seals the keys of releases to files. Without it only releases in memory and training can be
        paid, and an older copy of the ledger is not noticed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from matrixdp import IMGM, Budget, FrobeniusBall
    >>> from matrixdp.ledger import Ledger
    >>> folder = TemporaryDirectory()
    >>> url, keys = f"sqlite:///{folder.name}/study.ledger", f"{folder.name}/study.keys"
    >>> with Ledger.create(url, keys=keys) as ledger:
    ...     _ = ledger.open_account("clinic", Budget(1.0, 1e-5), neighbouring="replace")
    >>> with Ledger.open(url, keys=keys) as ledger:
    ...     account = ledger.account("clinic")
    ...     ball = FrobeniusBall(1.0, neighbouring="replace")
    ...     release = IMGM(ball, Budget(0.5, 1e-5)).release([[1.0, 2.0]], privacy_filter=account)
    ...     print(round(account.remaining, 3))
    0.227
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, keys: KeyFile | None = None) -> None:
        self._store = store
        self._use_keys(keys)
        seen = self._seen()
        with store.read() as rows:
            found = head(rows)
            self._identity = found.ledger
            check_version(found.version, store.address)
            self._check(seen, rows)
            self.check_keys(rows)

    def _use_keys(self, keys: KeyFile | None) -> None:
        self._keys = keys
        # Beside the keys and not beside the ledger, whose backups would bring it back as well.
        self._mark = (
            None
            if keys is None
            else HighWaterMark(keys.path.with_name(keys.path.name + ".seen"), self.address)
        )

    @classmethod
    def create(cls, url: str, *, keys: str | Path) -> Self:
        """Make a new ledger, and its key file if there is none of that name.

        Parameters
        ----------
        url : str
            ``sqlite:///file``, or ``postgresql+psycopg://user@host/database`` of a server (extra
            ``ledger``).
        keys : path
            The key file. Keep it apart from the backups of the ledger.

        Raises
        ------
        InvalidParameterError
            If there is a ledger already.
        StorageError
            If it cannot be written.
        """
        identity, key_file = secrets.token_hex(16), _opened_or_made(keys)

        def fill(rows: Rows) -> None:
            make_tables(rows, identity, key_file.fingerprint, first_digest(identity))

        return cls(_store(url, fill), key_file)

    @classmethod
    def open(cls, url: str, *, keys: str | Path | None = None) -> Self:
        """Open a ledger.

        Raises
        ------
        InvalidParameterError
            If there is none.
        LedgerError
            If it is of another version, or older than what was seen of it before.
        StorageError
            If it cannot be read.
        """
        return cls(_store(url), None if keys is None else KeyFile(Path(keys)))

    @property
    def identity(self) -> str:
        """The name that the ledger got when it was made; statements and witnesses hold it."""
        return self._identity

    @property
    def address(self) -> str:
        """Where it is."""
        return self._store.address

    @property
    def keys(self) -> KeyFile | None:
        """The key file, if there is one."""
        return self._keys

    def open_account(
        self,
        name: str,
        budget: Budget,
        *,
        neighbouring: Neighbouring,
        unit: str = "record",
        records_per_unit: int = 1,
        plans: Iterable[SampledPlan] = (),
        claims_delta: float = 0.0,
    ) -> LedgerAccount:
        """Open an account, whose terms never change.

        Parameters
        ----------
        name : str
            ``"clinic"``, or ``"clinic/ann"`` below an account that exists. What children may spend
            can add up to more than the account above holds; it is asked, too.
        budget : Budget
            What everything paid from the account guarantees together.
        neighbouring : {"add-remove", "replace"}
            The relation.
        unit : str, optional
            Whom the promise is about.
        records_per_unit : int, optional
            How many records one unit has at most. That it has no more is assumed, not enforced.
        plans : iterable of SampledPlan, optional
            Sampled plans that will be run from this account, each once.
        claims_delta : float, optional
            The part of delta for claims, and for plans that are chosen later.
        """
        check_budget(budget)
        terms = Terms(
            epsilon=budget.epsilon,
            delta=budget.delta,
            neighbouring=neighbouring,
            unit=unit,
            records_per_unit=records_per_unit,
            plans=tuple(plans),
            claims_delta=claims_delta,
        )
        checked_name(name)
        limit = account_limit(terms)  # plans take seconds, in which nobody else could pay
        opening = secrets.token_hex(16)  # so that it is opened once, if a connection breaks
        self.write(lambda rows: open_account(rows, name, terms, limit, opening))
        return LedgerAccount(name, terms, self)

    def account(self, name: str, *, command: Sequence[str] | None = None) -> LedgerAccount:
        """Return an account, to be passed as ``privacy_filter``.

        Parameters
        ----------
        name : str
            Of an account that was opened.
        command : sequence of str, optional
            The command line that pays, by which ``matrixdp ledger finish`` repeats it.
        """
        checked_name(name)
        found = self.read(lambda rows: path_to(rows, name))[0]
        return LedgerAccount(name, found.terms, self, command)

    def accounts(self) -> list[Balance]:
        """Return all accounts with their balances, parents before children."""
        return self.read(balances)

    def history(self) -> list[Entry]:
        """Return all entries."""
        return self.read(lambda rows: list(entries(rows)))

    def pending(self) -> list[Pending]:
        """Return the releases that are paid and not yet out, the oldest first."""
        return self.read(pending_releases)

    def finish(self, release: str, value: Any = None, *, force: bool = False) -> Path:
        """Finish a release that is paid and not out, and return its file.

        Parameters
        ----------
        release : str
            Its request, which `pending` lists.
        value : optional
            What was released: the very same matrix, or the path of the same ``.npy`` file. Without
            it only a release is finished whose files are complete.
        force : bool, optional
            Whether existing files are replaced, as the release was asked to do.

        Raises
        ------
        InvalidParameterError
            If there is nothing to finish, the value is another one, or it does not tell all of the
            release. Then the message says what to repeat.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from matrixdp import IMGM, Budget, FrobeniusBall
        >>> folder = TemporaryDirectory()
        >>> url, keys = f"sqlite:///{folder.name}/study.ledger", f"{folder.name}/study.keys"
        >>> with Ledger.create(url, keys=keys) as ledger:
        ...     _ = ledger.open_account("clinic", Budget(1.0, 1e-5), neighbouring="replace")
        ...     mechanism = IMGM(FrobeniusBall(1.0, "replace"), Budget(0.5, 1e-5))
        ...     release = mechanism.release_to(
        ...         f"{folder.name}/out.npy", [[1.0, 2.0]],
        ...         privacy_filter=ledger.account("clinic"), request="June",
        ...     )
        ...     ledger.pending(), ledger.finish("June").name
        ([], 'out.npy')
        >>> folder.cleanup()
        """
        return finish(self, release, value, force=force)

    def forfeit(self, release: str) -> None:
        """Give up a release that is paid and not out: its key goes, what it cost stays spent."""
        give_up(self, release)

    def rotate_keys(self, keys: str | Path) -> None:
        """Seal what is pending under another key file, which is made if there is none.

        The former one opens nothing of this ledger any more, but old copies of it. Erase it.
        """
        if self._keys is None:
            raise InvalidParameterError("the ledger was opened without keys: pass its key file")
        former, fresh = self._keys, _opened_or_made(keys)

        def seal_anew(rows: Rows) -> None:
            if head(rows).key == fresh.fingerprint:
                return  # the connection broke after it was done
            self.check_keys(rows)
            for one in pending_releases(rows):
                secret = former.unseal(one.sealed, self._identity, one.release)
                rows.execute(
                    "UPDATE pending SET sealed = :sealed WHERE release = :release",
                    sealed=fresh.seal(secret, self._identity, one.release),
                    release=one.release,
                )
            rows.execute("UPDATE head SET key = :key", key=fresh.fingerprint)

        self.write(seal_anew)
        self.erase()
        self._use_keys(fresh)
        self.write(lambda _rows: None)  # what was seen is known beside the new file, too

    def write(self, operation: Callable[[Rows], T]) -> T:
        """Return what an operation returns, done once and durable.

        Where a connection breaks nobody knows whether the changes are there, so an operation looks
        for its own before it makes them, and is tried again.
        """

        def attempt() -> tuple[T, Head]:
            seen = self._seen()
            with self._store.write() as rows:
                self._check(seen, rows)
                return operation(rows), head(rows)

        result, written = _until_connected(attempt)
        if self._mark is not None:
            self._mark.advance(written)
        return result

    def read(self, operation: Callable[[Rows], T]) -> T:
        """Return what an operation reads, of one moment."""

        def attempt() -> T:
            seen = self._seen()
            with self._store.read() as rows:
                self._check(seen, rows)
                return operation(rows)

        return _until_connected(attempt)

    def erase(self) -> None:
        """Overwrite deleted keys, as far as the database can."""
        self._store.erase()

    def close(self) -> None:
        """Give the connection back."""
        self._store.close()

    def _seen(self) -> list[Mark]:
        """Return the marks; before the rows, to which others add while they are looked at."""
        return [] if self._mark is None else self._mark.seen()

    def _check(self, seen: list[Mark], rows: Rows) -> None:
        found = head(rows)
        if found.ledger != self._identity:
            raise LedgerError(
                f"{self.address} holds another ledger than a moment ago. Nothing was paid"
            )
        if self._mark is not None:
            self._mark.check(seen, rows, found)

    def check_keys(self, rows: Rows) -> None:
        """Raise if the key file is not, or no longer, the one of this ledger."""
        if self._keys is not None and self._keys.fingerprint != head(rows).key:
            raise InvalidParameterError(
                f"keys={str(self._keys.path)!r} is not the key file of {self.address}: pass the "
                "one that it was made with, or that its keys were rotated to"
            )

    def __enter__(self) -> Self:
        """Return the ledger itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Show where it is."""
        return f"Ledger({self.address!r})"


def _opened_or_made(keys: str | Path) -> KeyFile:
    path = Path(keys)
    return KeyFile(path) if path.exists() else KeyFile.create(path)


def _until_connected(attempt: Callable[[], T]) -> T:
    for pause in _PAUSES:
        try:
            return attempt()
        except LostConnectionError:
            time.sleep(pause)
    return attempt()


def _store(url: object, fill: Callable[[Rows], None] | None = None) -> Store:
    """Return the store of a URL; a new one if there is something to fill it with."""
    if isinstance(url, str) and url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        path = Path(url.removeprefix(_SQLITE))
        return SQLiteStore(path) if fill is None else SQLiteStore.make(path, fill)
    if isinstance(url, str) and url.startswith(_POSTGRESQL):
        try:
            from matrixdp.ledger.stores.postgresql import PostgreSQLStore  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError(
                "a ledger on a PostgreSQL server needs sqlalchemy and psycopg: pip install "
                "'matrixdp[ledger]'"
            ) from error
        return PostgreSQLStore(url) if fill is None else PostgreSQLStore.make(url, fill)
    # Not the whole of it: there may be a password.
    kind = url.partition("://")[0] if isinstance(url, str) and "://" in url else type(url).__name__
    raise InvalidParameterError(
        f"url of kind {kind!r} is not the address of a ledger: pass sqlite:///FILE or "
        "postgresql+psycopg://USER@HOST/DATABASE"
    )
