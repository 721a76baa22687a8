"""The change of a ledger's key file, within a transaction."""

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.chain import append, first_of
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.payments import user
from matrixdp.ledger.pending import bound_to, pending_releases, stated_command, unsealed
from matrixdp.ledger.schema import head
from matrixdp.ledger.stores.store import Rows

__all__ = ["seal_anew"]


def seal_anew(rows: Rows, former: KeyFile | None, fresh: KeyFile, ledger: str) -> None:
    """Seal the keys of what is pending under another key file, and note that.

    Raises
    ------
    InvalidParameterError
        If something is pending, and the former key file is not there to open its key.
    """
    for one in pending_releases(rows):
        if former is None:
            raise InvalidParameterError(
                f"release={one.release!r} is pending, and only the former key file opens its key: "
                "pass that file; if it is lost, then forfeit the release"
            )
        paid = first_of(rows, one.release)
        secret = unsealed(former, ledger, one, paid)
        rows.execute(
            "UPDATE pending SET sealed = :sealed WHERE release = :release",
            sealed=fresh.seal(secret, bound_to(ledger, one, stated_command(paid))),
            release=one.release,
        )
    keys = {"former": head(rows).key, "key": fresh.fingerprint, "by": user()}
    rows.execute("UPDATE head SET key = :key", key=fresh.fingerprint)
    append(rows, "rotate", "", "", keys)
