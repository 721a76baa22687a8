"""Releases that were paid and are not out, because a process died: finished, or given up."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.publishing.atomic import force_folder, remove_unfinished
from matrixdp.files.publishing.completed import completed_digest, discard_unfinished
from matrixdp.files.publishing.paid_release import PaidMatrix, release_prepared_to
from matrixdp.files.publishing.releases import ReleaseStatement, promise_of
from matrixdp.files.publishing.statement import decoded, statement_path
from matrixdp.files.publishing.streamed_release import release_promised_npy
from matrixdp.files.schemas.about import about_of
from matrixdp.ledger.account import LedgerAccount
from matrixdp.ledger.chain import Entry, entries_of
from matrixdp.ledger.command import PayingCommand
from matrixdp.ledger.payments import Pending, evidence_of, forfeit, pending_release, publish
from matrixdp.ledger.stores.store import Rows
from matrixdp.ledger.transactions import Transactions
from matrixdp.mechanisms.drawing import PreparedRelease, checked_matrix

__all__ = ["Accounts", "finish", "give_up"]


class Accounts(Transactions, Protocol):
    """What finishing needs of a ledger."""

    def account(self, name: str, *, command: PayingCommand | None = None) -> LedgerAccount:
        """Return an account."""


def finish(ledger: Accounts, release: str, value: Any, *, force: bool) -> Path:
    """Finish a release; see `Ledger.finish`."""
    entries, kept = ledger.read(_looked_up(release))
    if kept is None:
        ledger.erase()  # what published it may have been killed before
        return _already_out(entries, release)
    target = Path(kept.target)
    if value is not None:
        _repeat(ledger.account(kept.account), kept, value, force=force)
        return target
    digest = completed_digest(target, evidence_of(ledger.identity, entries[0]))
    if digest is None:
        raise InvalidParameterError(
            f"release={release!r} is not complete as {target}: pass the value that was released, "
            f"or {_call(kept)}"
        )
    force_folder(target.parent)
    ledger.write(lambda rows: publish(rows, release, digest))
    ledger.erase()
    for path in (target, statement_path(target)):
        remove_unfinished(path)
    return target


def give_up(ledger: Transactions, release: str) -> None:
    """Give up a release, and remove what it left on disk; see `Ledger.forfeit`."""
    ledger.write(lambda rows: forfeit(rows, release))
    ledger.erase()
    entries, _ = ledger.read(_looked_up(release))
    target = Path(entries[0].facts["target"])
    discard_unfinished(target, evidence_of(ledger.identity, entries[0]))


def _repeat(account: LedgerAccount, kept: Pending, value: Any, *, force: bool) -> None:
    """Draw and publish what was paid, from the same value."""
    try:
        statement = decoded(kept.draft.encode(), ReleaseStatement, "the draft of a statement")
    except FileFormatError:
        statement = None
    # Others were computed from more than one value, or by a strategy that the draft does not hold.
    if statement is None or statement.counts:
        raise InvalidParameterError(
            f"release={kept.release!r} cannot be finished from a value alone: {_call(kept)}"
        )
    promise = promise_of(statement)
    if isinstance(value, str | PathLike):
        release_promised_npy(
            *(promise, value, kept.target),
            privacy_filter=account,
            request=kept.release,
            force=force,
            threads=None,
            about=about_of(statement.about),
        )
        return
    release_prepared_to(
        PaidMatrix(
            main=PreparedRelease(checked_matrix(value, promise.proof), promise),
            query=statement.query,
            about=about_of(statement.about),
        ),
        kept.target,
        privacy_filter=account,
        request=kept.release,
        force=force,
        threads=None,
    )


def _looked_up(release: str) -> Callable[[Rows], tuple[list[Entry], Pending | None]]:
    return lambda rows: (entries_of(rows, release), pending_release(rows, release))


def _already_out(entries: Sequence[Entry], release: str) -> Path:
    """Return the file of a release that is out, or raise if there is nothing to finish."""
    if entries and entries[-1].kind == "publish":
        return Path(entries[0].facts["target"])
    found = f"its last entry is {entries[-1].kind!r}" if entries else "it was never paid"
    raise InvalidParameterError(
        f"release={release!r} cannot be finished: {found}. Ledger.pending() lists what can be"
    )


def _call(kept: Pending) -> str:
    return f"repeat the same call with request={kept.release!r}, which pays nothing"
