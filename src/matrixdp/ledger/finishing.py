"""Releases that were paid and are not out, because a process died: finished, or given up."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.atomic import force_folder, remove_unfinished
from matrixdp.files.publishing.completed import completed_digest, discard
from matrixdp.files.publishing.drafted import release_drafted_to
from matrixdp.files.publishing.locks import folder_locked
from matrixdp.files.publishing.statement import statement_path
from matrixdp.ledger.account import LedgerAccount
from matrixdp.ledger.checked_store import CheckedStore
from matrixdp.ledger.payments import evidence_of, forfeit, payment_to_files, publish
from matrixdp.ledger.pending import PayingCommand, Standing, standing, stated_command, unsealed

__all__ = ["finish", "give_up", "paid_by"]


def finish(
    ledger: CheckedStore,
    account: Callable[[str], LedgerAccount],
    release: str,
    value: Any,
    counts: Mapping[str, int],
    *,
    force: bool,
) -> Path:
    """Finish a release, which an account of this name pays for; see `Ledger.finish`."""
    known = ledger.read(lambda rows: standing(rows, release))
    if known.paid is None or known.kept is None:
        ledger.erase()  # what published it may have been killed before
        return _already_out(known, release)
    kept, target = known.kept, Path(known.kept.target)
    if value is not None:
        release_drafted_to(
            *(kept.draft.encode(), value, target),
            counts=counts,
            payer=account(kept.account),
            request=release,
            force=force,
        )
        return target
    digest = completed_digest(target, evidence_of(ledger.identity, known.paid))
    if digest is None:
        raise InvalidParameterError(
            f"release={release!r} is not complete as {target}: pass the value that was released, "
            f"or repeat the same call with request={release!r}, which pays nothing"
        )
    force_folder(target.parent)
    ledger.write(lambda rows: publish(rows, release, digest))
    ledger.erase()
    for path in (target, statement_path(target)):
        remove_unfinished(path)
    return target


def give_up(ledger: CheckedStore, release: str) -> None:
    """Give up a release, and remove what it left on disk; see `Ledger.forfeit`."""
    known = ledger.read(lambda rows: standing(rows, release))
    paid = payment_to_files(known, release)
    target, evidence = Path(paid.facts["target"]), evidence_of(ledger.identity, paid)
    # Alone: no attempt gives its files their names meanwhile. One that does so later, or where it
    # is another folder, learns of it when it publishes.
    with folder_locked(target.parent):
        if known.kept is not None and completed_digest(target, evidence) is not None:
            raise InvalidParameterError(
                f"release={release!r} is out as {target}, and somebody may have read it: `matrixdp "
                f"ledger finish {release}` notes that. To give it up, remove the file before"
            )
        ledger.write(lambda rows: forfeit(rows, release))
        ledger.erase()
        discard(target, evidence)


def paid_by(ledger: CheckedStore, release: str) -> tuple[str, PayingCommand | None]:
    """Return the account and the command that paid for a release; see `Ledger.paying_account`."""
    known = ledger.read(lambda rows: standing(rows, release))
    if known.paid is None or known.kept is None:
        raise _not_pending(known, release)
    command = stated_command(known.paid)
    if ledger.keys is not None:
        unsealed(ledger.keys, ledger.identity, known.kept, known.paid)
    elif command is not None:
        raise InvalidParameterError(
            "the ledger was opened without keys, and only its key file proves that a command is "
            "the one that paid: pass it"
        )
    repeated = None if command is None else msgspec.convert(command, PayingCommand)
    return known.kept.account, repeated


def _already_out(known: Standing, release: str) -> Path:
    """Return the file of a release that is out, or raise if there is nothing to finish."""
    if known.paid is not None and known.last is not None and known.last.kind == "publish":
        return Path(known.paid.facts["target"])
    raise _not_pending(known, release)


def _not_pending(known: Standing, release: str) -> InvalidParameterError:
    found = "it was never paid" if known.last is None else f"its last entry is {known.last.kind!r}"
    return InvalidParameterError(
        f"release={release!r} cannot be finished: {found}. Ledger.pending() lists what can be"
    )
