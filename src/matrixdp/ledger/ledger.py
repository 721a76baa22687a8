"""Ledgers: budgets in a database, which survive crashes, processes and machines."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from matrixdp.errors import LedgerError
from matrixdp.ledger.account import LedgerAccount
from matrixdp.ledger.balances import Balance, account_limit, balances, open_account, path_to
from matrixdp.ledger.chain import Entry, first_digest, latest
from matrixdp.ledger.checked_store import CheckedStore
from matrixdp.ledger.explanation import (
    AccountInWords,
    account_in_words,
    explain_account,
    explain_release,
    payment_of,
)
from matrixdp.ledger.finishing import finish, give_up, paid_by
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.pending import PayingCommand, Pending, pending_releases, seal_anew
from matrixdp.ledger.schema import head, make_tables
from matrixdp.ledger.stores import opened_store
from matrixdp.ledger.stores.store import Rows, until_connected
from matrixdp.ledger.terms import Terms, checked_name
from matrixdp.ledger.verification import Verification, verified
from matrixdp.ledger.witness import against_statements
from matrixdp.parameters import positive_integer
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.guarantee import Neighbouring

__all__ = ["Ledger"]


class Ledger(CheckedStore):
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
        identity, key_files = secrets.token_hex(16), list[KeyFile]()

        def fill(rows: Rows) -> None:
            # Only now: where there is a ledger already, a key file that is not its own misleads.
            key_files.append(KeyFile.opened_or_made(Path(keys)))
            key = key_files[0].fingerprint
            make_tables(rows, identity, key, first_digest(identity, key))

        return cls(opened_store(url, fill), key_files[0])

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
        return cls(opened_store(url), None if keys is None else KeyFile(Path(keys)))

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
            How many records one unit has at most. That it has no more is assumed, not enforced;
            training plans that sample units do not need it.
        plans : iterable of SampledPlan, optional
            Sampled plans that will be run from this account, each once. Where one unit may have
            several records, they are of training plans that sample units.
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

    def account(self, name: str, *, command: PayingCommand | None = None) -> LedgerAccount:
        """Return an account, to be passed as ``privacy_filter``.

        Parameters
        ----------
        name : str
            Of an account that was opened.
        command : PayingCommand, optional
            The command line that pays; entries hold it, and ``matrixdp ledger finish`` repeats it.
        """
        checked_name(name)
        found = self.read(lambda rows: path_to(rows, name))[0]
        return LedgerAccount(name, found.terms, self, command)

    def accounts(self) -> list[Balance]:
        """Return all accounts with their balances, parents before children."""
        return self.read(balances)

    def history(self, account: str | None = None, *, last: int | None = None) -> list[Entry]:
        """Return the entries in their order.

        Parameters
        ----------
        account : str, optional
            Only those of this account and of the accounts below it.
        last : int, optional
            Only the last so many: every training step has one.
        """
        count = None if last is None else positive_integer(last, "last")
        return self.read(lambda rows: latest(rows, account, count))

    def payment(self, request: str) -> Entry:
        """Return the entry that paid for a release or a training run."""
        return self.read(lambda rows: payment_of(rows, request))

    def explain(self, account: str) -> str:
        """Return who spent what of an account, when, and on what, in words."""
        return self.read(lambda rows: explain_account(rows, account))

    def in_words(self, account: str) -> AccountInWords:
        """Return what `explain` says, piece by piece."""
        return self.read(lambda rows: account_in_words(rows, account))

    def explain_release(self, request: str) -> str:
        """Return who paid for a release or a training run, and what became of it, in words."""
        return self.read(lambda rows: explain_release(rows, request))

    def verify(self) -> Verification:
        """Compute the chain, every cost and all totals again, and say what does not agree.

        With the key file also the keys of pending releases, and what was seen of the ledger before.
        """

        def attempt() -> Verification:
            seen = self._seen()
            with self._store.read() as rows, self._altered():
                found = verified(rows, self._keys)
                try:
                    self._check(seen, rows)
                except LedgerError as error:
                    return replace(found, findings=(*found.findings, str(error)))
                return found

        return until_connected(attempt)

    def verify_statements(self, paths: Iterable[str | Path]) -> list[str]:
        """Return where releases do not agree with the ledger: another or a missing entry, or file.

        Parameters
        ----------
        paths : iterable of path
            Files of releases, or the statements beside them.
        """
        named = [Path(path) for path in paths]

        def attempt() -> list[str]:
            with self._store.read() as rows, self._altered():
                return against_statements(rows, self._identity, named)

        return until_connected(attempt)

    def pending(self) -> list[Pending]:
        """Return the releases that are paid and not yet out, the oldest first."""
        return self.read(pending_releases)

    def finish(
        self,
        release: str,
        value: Any = None,
        *,
        counts: Mapping[str, int] | None = None,
        force: bool = False,
    ) -> Path:
        """Finish a release that is paid and not out, and return its file.

        Parameters
        ----------
        release : str
            Its request, which `pending` lists.
        value : optional
            What was released: the very same matrix, or the path of the same ``.npy`` file; of a
            workload the histogram or the records; of a mean the sum. Without it only a release is
            finished whose files are complete.
        counts : mapping, optional
            The numbers that were released beside a matrix: ``{"records": 50}`` for a mean over a
            private count, ``{"clipped": 3}`` for what bounds have changed.
        force : bool, optional
            Whether existing files are replaced, as the release was asked to do.

        Raises
        ------
        InvalidParameterError
            If there is nothing to finish, or the value is another one; or a workload's strategy of
            more than a megabyte was not kept: then repeat the call that paid.

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
        return finish(self, self.account, release, value, counts or {}, force=force)

    def paying_account(self, release: str) -> LedgerAccount:
        """Return the account that paid for a pending release, with the command line that did.

        Raises
        ------
        InvalidParameterError
            If it is not pending, or the ledger was opened without its key file.
        LedgerError
            If somebody without the key file has altered the command, or what is released.
        """
        name, command = paid_by(self, release)
        return self.account(name, command=command)

    def forfeit(self, release: str) -> None:
        """Give up a release that is paid and not out: its key goes, what it cost stays spent.

        Raises
        ------
        InvalidParameterError
            If it was not paid, or is out: then somebody may have read it.
        """
        give_up(self, release)

    def rotate_keys(self, keys: str | Path) -> None:
        """Seal what is pending under another key file, which is made if there is none.

        The former one opens nothing of this ledger any more, but old copies of it. Erase it. If it
        is lost, open the ledger without it and forfeit what is pending before.
        """
        former, fresh = self._keys, KeyFile.opened_or_made(Path(keys))

        def rotate(rows: Rows) -> None:
            if head(rows).key != fresh.fingerprint:  # unless a connection broke after it was done
                self.check_keys(rows)
                seal_anew(rows, former, fresh, self._identity)

        self.write(rotate)
        self.erase()
        self._use_keys(fresh)
        self.write(lambda _rows: None)  # what was seen is known beside the new file, too

    def __repr__(self) -> str:
        """Show where it is."""
        return f"Ledger({self.address!r})"
