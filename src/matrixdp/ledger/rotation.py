"""The change of a ledger's key file, within a transaction."""

from matrixdp.ledger.chain import append
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.payments import pending_releases, user
from matrixdp.ledger.stores.store import Rows

__all__ = ["seal_anew"]


def seal_anew(rows: Rows, former: KeyFile, fresh: KeyFile, ledger: str) -> None:
    """Seal the keys of what is pending under another key file, and note that."""
    for one in pending_releases(rows):
        secret = former.unseal(one.sealed, ledger, one.release)
        rows.execute(
            "UPDATE pending SET sealed = :sealed WHERE release = :release",
            sealed=fresh.seal(secret, ledger, one.release),
            release=one.release,
        )
    rows.execute("UPDATE head SET key = :key", key=fresh.fingerprint)
    keys = {"former": former.fingerprint, "key": fresh.fingerprint, "by": user()}
    append(rows, "rotate", "", "", keys)
