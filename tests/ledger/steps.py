"""Releases that tests pay for, wholly or in part, and what is checked of every ledger."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.files.publishing import paid_release
from matrixdp.ledger import Entry, Ledger, LedgerAccount
from matrixdp.ledger.chain import entry_digest

__all__ = ["LITTLE", "MECHANISM", "MU", "check_chain", "paid_only", "reopened", "spent"]

MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), Budget(0.5, 1e-5))
MU = Fraction(MECHANISM.guarantee.mu)
LITTLE = 1e-4  # a mu that can be paid as often as a machine is fast


def reopened(url: str, folder: Path) -> Ledger:
    """Open a ledger again."""
    return Ledger.open(url, keys=folder / "a.keys")


def spent(ledger: Ledger) -> dict[str, Fraction]:
    """Return what each account has spent of mu squared."""
    return {one.name: one.spent.mu_squared for one in ledger.accounts()}


def check_chain(ledger: Ledger, history: list[Entry]) -> None:
    """Check that every entry holds the digest of the one before it, and times never fall."""
    previous, time = history[0].previous, ""
    for number, entry in enumerate(history, 1):
        fields = tuple(getattr(entry, name) for name in entry.__slots__)
        assert (entry.sequence, entry.previous) == (number, previous)
        assert entry.digest == entry_digest(fields[:-1])
        assert entry.time >= time
        previous, time = entry.digest, entry.time
    assert ledger.verify().findings == ()


class Stopped(Exception):  # noqa: N818
    """What a test raises instead of a crash."""


def stop_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what follows a draw fail."""

    def stop(*_: object, **__: object) -> None:
        raise Stopped

    monkeypatch.setattr(paid_release, "save_release", stop)


def paid_only(account: LedgerAccount, target: Path, request: str) -> None:
    """Pay for a release and stop before it has a file."""
    with pytest.MonkeyPatch.context() as patch:
        stop_drawing(patch)
        with pytest.raises(Stopped):
            MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request=request)
